"""An LLM without a model: it says what it is told to say, piece by piece, and notes what it was asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from pagoda.core.sampling_params import SamplingParams
from pagoda.engine.output import CompletionOutput, RequestMetrics, RequestOutput


class ChatLLM:
    """`pieces` are the answer; `before_piece` is called with the number of each piece before it is said."""

    def __init__(
        self, pieces: Sequence[str] = ("Hi", " there"), template: str | None = "t", context: int = 100
    ) -> None:
        self.pieces = list(pieces)
        self.asked: list[Any] = []
        self.sampling: list[SamplingParams] = []
        self.num_open = 0
        self.finish_reason = "stop"
        self.num_prompt_tokens = 5
        self.before_piece: Callable[[int], None] = lambda number: None
        self.engine = SimpleNamespace(
            tokenizer=SimpleNamespace(chat_template=template), memory=SimpleNamespace(max_model_len=context)
        )

    def stream(self, prompt: str, sampling_params: SamplingParams) -> Iterator[RequestOutput]:
        return self._stream(prompt, sampling_params)

    def stream_chat(
        self, messages: list[Mapping[str, str]], sampling_params: SamplingParams
    ) -> Iterator[RequestOutput]:
        return self._stream(messages, sampling_params)

    def _stream(self, asked: Any, sampling: SamplingParams) -> Iterator[RequestOutput]:
        self.asked.append(asked)
        self.sampling.append(sampling)
        answer = CompletionOutput(0)
        output = RequestOutput("0", None, [1] * self.num_prompt_tokens, [answer], RequestMetrics(0.0))
        self.num_open += 1
        try:
            for number, piece in enumerate(self.pieces):
                self.before_piece(number)
                answer.text += piece
                answer.token_ids.append(number)
                output.metrics.first_token_time = output.metrics.first_token_time or 0.5
                output.metrics.last_token_time = 0.5 + number
                if number == len(self.pieces) - 1:
                    answer.finish_reason, output.finished = self.finish_reason, True  # type: ignore[assignment]
                yield output
        finally:
            self.num_open -= 1
