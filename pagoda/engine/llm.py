"""The offline front door: give it prompts, get answers."""

from __future__ import annotations

import difflib
import math
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from pagoda.core.config import EngineConfig, device_defaults
from pagoda.core.errors import InvalidRequest, PagodaError
from pagoda.core.request import Pooling, Request
from pagoda.core.sampling_params import SamplingParams
from pagoda.engine.build import Engine, Progress, build_engine
from pagoda.engine.interrupts import interrupts_deferred
from pagoda.engine.messages import AbortRequest, AddRequest, PushBackRequest
from pagoda.engine.output import OutputProcessor, RequestOutput
from pagoda.engine.progress import BatchProgress
from pagoda.engine.prompts import Messages, Prompt, PromptReader

Params = SamplingParams | Sequence[SamplingParams] | None
# A device that computes beside the host has its first step as soon as there are tokens for one. To take in requests
# takes the host time, so between two steps as many come as would fill so many: few enough not to hold up the next.
STEPS_OPENED = 16


class LLM:
    """A model in this process.

    >>> from pagoda import LLM, SamplingParams
    >>> llm = LLM("smollm2")
    >>> llm.generate("The capital of France is", SamplingParams(temperature=0, max_tokens=8))[0].outputs[0].text

    Keywords are those of `EngineConfig`. One thread at a time may use it; `AsyncLLM` serves many callers.
    """

    def __init__(self, model: str | Path, *, progress: Progress | None = None, **settings: Any) -> None:
        self._engine = build_engine(engine_config(model, settings), progress)
        self._outputs = OutputProcessor(self._engine.tokenizer)
        self._reader = PromptReader(self._engine.tokenizer, self._engine.loop.max_model_len)
        self._rejected: dict[str, PagodaError] = {}

    @property
    def engine(self) -> Engine:
        return self._engine

    def get_tokenizer(self) -> Any:
        return self._engine.tokenizer

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: Params = None,
        use_tqdm: bool = True,
        priority: Sequence[int] | None = None,
    ) -> list[RequestOutput]:
        """Answers in the order of the prompts, however they were scheduled."""
        read = self._reader.read_many(prompts)
        requests = self._requests([ids for _, ids in read], sampling_params, priority)
        return self._run(requests, [text for text, _ in read], use_tqdm)

    def chat(
        self,
        messages: Messages | Sequence[Messages],
        sampling_params: Params = None,
        use_tqdm: bool = True,
        add_generation_prompt: bool = True,
        **template_variables: Any,
    ) -> list[RequestOutput]:
        """Continue one conversation, or each of several, as the model's own chat template says."""
        conversations = self._reader.conversations(messages)
        texts = [self._reader.render_chat(c, add_generation_prompt, **template_variables) for c in conversations]
        requests = self._requests([self._reader.read_chat(text)[1] for text in texts], sampling_params, None)
        return self._run(requests, texts, use_tqdm)

    def embed(
        self, prompts: Prompt | Sequence[Prompt], pooling: Pooling = "mean", use_tqdm: bool = True
    ) -> list[RequestOutput]:
        """Each prompt as one vector, `output.embedding`: the mean of its tokens' last hidden states, or the last's."""
        if pooling not in ("mean", "last"):
            raise InvalidRequest("pooling", f"{pooling!r} is not one of 'mean', 'last'")
        read = self._reader.read_many(prompts)
        sampling = SamplingParams(max_tokens=1)
        requests = [self._reader.request(ids, sampling, task="embed", pooling=pooling) for _, ids in read]
        return self._run(requests, [text for text, _ in read], use_tqdm)

    def stream(self, prompt: Prompt, sampling_params: SamplingParams | None = None) -> Iterator[RequestOutput]:
        """One answer as it grows: the same object again and again, each time with more in it."""
        text, token_ids = self._reader.read(prompt)
        return self._stream(self._reader.request(token_ids, sampling_params or SamplingParams()), text)

    def stream_chat(
        self, messages: Messages, sampling_params: SamplingParams | None = None, **template_variables: Any
    ) -> Iterator[RequestOutput]:
        text, token_ids = self._reader.read_chat(self._reader.render_chat(messages, **template_variables))
        return self._stream(self._reader.request(token_ids, sampling_params or SamplingParams()), text)

    def save_decision_log(self, path: str | Path) -> None:
        """Write what the scheduler decided and why, for `pagoda why` and `pagoda replay`."""
        self._engine.loop.scheduler.log.save(Path(path))

    def reset_prefix_cache(self) -> None:
        scheduler = self._engine.loop.scheduler
        scheduler.cache.tree.clear()
        scheduler.log.attach(scheduler.board)  # no event says what happened, so the log begins anew

    def preempt(self, request_id: str) -> None:
        """Push a running request back into the queue; its answer does not change."""
        self._engine.loop.inbox.append(PushBackRequest(request_id))

    def close(self) -> None:
        self._engine.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _requests(self, prompts: list[list[int]], params: Params, priority: Sequence[int] | None) -> list[Request]:
        count = len(prompts)
        if params is None or isinstance(params, SamplingParams):
            each = [params or SamplingParams()] * count
        else:
            each = list(params)
        if len(each) != count:
            raise InvalidRequest("sampling_params", f"{len(each)} given for {count} prompts; give one, or one for each")
        ranks = list(priority) if priority is not None else [0] * count
        if len(ranks) != count:
            raise InvalidRequest("priority", f"{len(ranks)} given for {count} prompts; give one for each")
        return [
            self._reader.request(ids, sampling, priority=rank)
            for ids, sampling, rank in zip(prompts, each, ranks, strict=True)
        ]

    def _run(self, requests: list[Request], texts: Sequence[str | None], use_tqdm: bool) -> list[RequestOutput]:
        for request in requests:
            self._engine.loop.check(request)  # before any of them starts
        outputs: list[RequestOutput] = []
        waiting = deque(zip(requests, texts, strict=True))
        with BatchProgress(len(requests), enabled=use_tqdm) as progress:
            try:
                with interrupts_deferred() as interrupts:
                    while waiting or len(self._outputs):
                        outputs += self._open_some(waiting)
                        for output in self._turn():
                            progress.update(output)
                        self._raise_rejected(requests)
                        interrupts.deliver()
            except BaseException:
                self._abandon(requests[: len(outputs)])
                raise
        self._settle()
        return outputs

    def _stream(self, request: Request, text: str | None) -> Iterator[RequestOutput]:
        self._engine.loop.check(request)
        output = self._open(request, text)
        is_shown = False  # whether the caller has seen the whole answer
        try:
            while not is_shown:
                # Another stream may have turned the engine and finished this one meanwhile.
                has_news = output.finished or self._lone_turn()
                self._raise_rejected([request])
                if has_news:
                    is_shown = output.finished
                    yield output
        finally:
            if output.finished:
                self._settle()
            else:
                self._abandon([request])

    def _open(self, request: Request, text: str | None) -> RequestOutput:
        output = self._outputs.open(request, text, time.monotonic())
        self._engine.loop.inbox.append(AddRequest(request))
        return output

    def _open_some(self, waiting: deque[tuple[Request, str | None]]) -> list[RequestOutput]:
        """All of them; where steps run beside the host, first enough for one step, then for some."""
        executor = self._engine.loop.executor
        num_tokens = math.inf
        if executor.lateness:
            num_tokens = (STEPS_OPENED if executor.num_in_flight else 1) * self._engine.config.max_num_batched_tokens
        opened = []
        while waiting and num_tokens > 0:
            request, text = waiting.popleft()
            num_tokens -= len(request.prompt_token_ids)
            opened.append(self._open(request, text))
        return opened

    def _lone_turn(self) -> list[RequestOutput]:
        with interrupts_deferred():
            return self._turn()

    def _turn(self) -> list[RequestOutput]:
        """One step of the engine, which no Ctrl-C may cut short; the outputs that changed."""
        changed = []
        for update in self._engine.loop.step():
            output, then = self._outputs.take(update)
            if isinstance(then, PagodaError):
                self._rejected[update.request_id] = then
            elif then is not None:
                self._engine.loop.inbox.append(then)
            if output is not None:
                changed.append(output)
        return changed

    def _raise_rejected(self, requests: list[Request]) -> None:
        for request in requests if self._rejected else ():
            error = self._rejected.pop(request.request_id, None)
            if error is not None:
                raise error

    def _abandon(self, requests: list[Request]) -> None:
        for request in requests:
            self._outputs.forget(request.request_id)
            self._engine.loop.inbox.append(AbortRequest(request.request_id))
        self._settle()

    def _settle(self) -> None:
        """Leave nothing behind: let the last messages and steps be done, unless a stream is there to turn them."""
        loop = self._engine.loop
        with interrupts_deferred():
            while loop.has_work and not loop.has_failed:
                self._turn()
                if len(self._outputs):
                    break


def engine_config(model: str | Path, settings: dict[str, Any]) -> EngineConfig:
    known = [field.name for field in msgspec.structs.fields(EngineConfig) if field.name != "model"]
    for name in settings:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(known)}"
            raise InvalidRequest(name, f"is not a setting of this engine{hint}")
    return EngineConfig(model=str(model), **(device_defaults(settings.get("device")) | settings))
