"""One conversation with a model: asks, streams the answer, keeps what was said."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing, suppress
from typing import TYPE_CHECKING, cast

import msgspec

from pagoda.cli.chat.conversation import Conversation
from pagoda.cli.chat.interrupts import CatchInterrupts
from pagoda.cli.chat.parameters import check_sampling
from pagoda.cli.chat.statistics import statistics_line
from pagoda.cli.chat.terminal import Terminal
from pagoda.core.errors import InvalidRequest
from pagoda.core.sampling_params import SamplingParams

if TYPE_CHECKING:
    from pagoda.engine import LLM, RequestOutput

COMPLETION_TOKENS = 256  # a base model seldom finds an end by itself


class ChatSession:
    """What the commands look at and change, and the one way to an answer."""

    def __init__(self, llm: LLM, model: str, sampling: SamplingParams, terminal: Terminal) -> None:
        self.llm = llm
        self.model = model
        self.sampling = check_sampling(sampling)
        self.terminal = terminal
        self.conversation = Conversation()
        self.is_verbose = False

    @property
    def has_template(self) -> bool:
        return bool(self.llm.engine.tokenizer.chat_template)

    def set_system(self, text: str) -> None:
        if text and not self.has_template:
            raise InvalidRequest("system", f"{self.model} has no chat template, so there is no place for a system text")
        self.conversation.system = text

    def answer(self, question: str) -> bool:
        """Stream the answer; False if Ctrl-C stopped it. What was said until then is remembered."""
        output = None
        num_shown = 0
        stream = self._open(question)
        with CatchInterrupts() as interrupts:
            # Closing the stream takes its request out of the engine, however the answer ended. A second Ctrl-C does not
            # wait for the next token, which may be far off while a long prompt is computed.
            with suppress(KeyboardInterrupt), closing(stream):
                for output in stream:
                    text = output.outputs[0].text
                    self.terminal.write(text[num_shown:])
                    num_shown = len(text)
                    if interrupts.seen:
                        break
            if output is not None:
                self._conclude(question, output, num_shown)
        return not interrupts.seen

    def _conclude(self, question: str, output: RequestOutput, num_shown: int) -> None:
        said = output.outputs[0].text
        self.terminal.write(said[num_shown:])
        if not said.endswith("\n"):
            self.terminal.write("\n")
        if self.has_template:
            self.conversation.add(question, said)
        num_tokens = len(output.prompt_token_ids) + len(output.outputs[0].token_ids)
        context = self.llm.engine.memory.max_model_len
        if output.outputs[0].finish_reason == "length" and num_tokens >= context:
            self.terminal.notice(f"(the context of {context} tokens is full; /clear begins a new conversation)")
        if self.is_verbose:
            self.terminal.notice(statistics_line(output))

    def _open(self, question: str) -> Generator[RequestOutput, None, None]:
        if self.has_template:
            messages = self.conversation.with_question(question)
            return cast("Generator[RequestOutput, None, None]", self.llm.stream_chat(messages, self.sampling))
        sampling = self.sampling
        if sampling.max_tokens is None:
            sampling = msgspec.structs.replace(sampling, max_tokens=COMPLETION_TOKENS)
        return cast("Generator[RequestOutput, None, None]", self.llm.stream(question, sampling))
