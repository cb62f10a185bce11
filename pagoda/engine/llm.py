"""The offline front door: give it prompts, get answers."""

from __future__ import annotations

import difflib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from pagoda.core.config import EngineConfig
from pagoda.core.errors import InvalidRequest, PagodaError
from pagoda.core.plan import StepPlan
from pagoda.core.request import Pooling, Request
from pagoda.core.sampling_params import SamplingParams
from pagoda.engine.build import Engine, Progress, build_engine
from pagoda.engine.device import settled
from pagoda.engine.garbage import CollectorAtRest
from pagoda.engine.interrupts import interrupts_deferred
from pagoda.engine.messages import AbortRequest, AddRequest, PushBackRequest
from pagoda.engine.output import OutputProcessor, RequestOutput
from pagoda.engine.progress import BatchProgress
from pagoda.engine.prompts import Messages, Prompt

Params = SamplingParams | Sequence[SamplingParams] | None
Incoming = tuple[Request, str | None]
"""A request and the text of its prompt, if it has one."""
# A device that computes beside the host has its first step as soon as there are tokens for one. To make requests ready
# takes the host time, so beside a step come so many times its own tokens, and no more than would fill so many steps:
# few enough not to hold up the next, and enough to fill it where most of their tokens are cached.
TIMES_OPENED = 64
STEPS_OPENED = 20


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
        self._reader = self._engine.prompt_reader()
        self._rejected: dict[str, PagodaError] = {}

    @property
    def engine(self) -> Engine:
        return self._engine

    def get_tokenizer(self) -> Any:
        return self._engine.tokenizer

    def get_default_sampling_params(self) -> SamplingParams:
        """What a call without `sampling_params` takes: what the model's files recommend."""
        return self._engine.sampling_defaults.params()

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: Params = None,
        use_tqdm: bool = True,
        priority: Sequence[int] | None = None,
    ) -> list[RequestOutput]:
        """Answers in the order of the prompts, however they were scheduled."""
        each = self._reader.apart(prompts)
        settings = zip(*self._settings(len(each), sampling_params, priority), strict=True)

        def incoming() -> Iterator[Incoming]:
            for prompt, (sampling, rank) in zip(each, settings, strict=True):
                text, token_ids = self._reader.read(prompt)
                yield self._reader.request(token_ids, sampling, priority=rank), text

        return self._run(incoming(), len(each), use_tqdm)

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
        samplings, _ = self._settings(len(conversations), sampling_params, None)

        def incoming() -> Iterator[Incoming]:
            for conversation, sampling in zip(conversations, samplings, strict=True):
                rendered = self._reader.render_chat(conversation, add_generation_prompt, **template_variables)
                text, token_ids = self._reader.read_chat(rendered)
                yield self._reader.request(token_ids, sampling), text

        return self._run(incoming(), len(conversations), use_tqdm)

    def embed(
        self, prompts: Prompt | Sequence[Prompt], pooling: Pooling = "mean", use_tqdm: bool = True
    ) -> list[RequestOutput]:
        """Each prompt as one vector, `output.embedding`: the mean of its tokens' last hidden states, or the last's."""
        if pooling not in ("mean", "last"):
            raise InvalidRequest("pooling", f"{pooling!r} is not one of 'mean', 'last'")
        each = self._reader.apart(prompts)
        sampling = SamplingParams(max_tokens=1)

        def incoming() -> Iterator[Incoming]:
            for text, token_ids in map(self._reader.read, each):
                yield self._reader.request(token_ids, sampling, task="embed", pooling=pooling), text

        return self._run(incoming(), len(each), use_tqdm)

    def stream(self, prompt: Prompt, sampling_params: SamplingParams | None = None) -> Iterator[RequestOutput]:
        """One answer as it grows: the same object again and again, each time with more in it."""
        text, token_ids = self._reader.read(prompt)
        return self._stream(self._reader.request(token_ids, sampling_params), text)

    def stream_chat(
        self, messages: Messages, sampling_params: SamplingParams | None = None, **template_variables: Any
    ) -> Iterator[RequestOutput]:
        text, token_ids = self._reader.read_chat(self._reader.render_chat(messages, **template_variables))
        return self._stream(self._reader.request(token_ids, sampling_params), text)

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

    def _settings(
        self, count: int, params: Params, priority: Sequence[int] | None
    ) -> tuple[list[SamplingParams | None], list[int]]:
        """For each of so many prompts; None for what the model's files recommend."""
        if params is None or isinstance(params, SamplingParams):
            each: list[SamplingParams | None] = [params] * count
        else:
            each = list(params)
        if len(each) != count:
            raise InvalidRequest("sampling_params", f"{len(each)} given for {count} prompts; give one, or one for each")
        ranks = list(priority) if priority is not None else [0] * count
        if len(ranks) != count:
            raise InvalidRequest("priority", f"{len(ranks)} given for {count} prompts; give one for each")
        return each, ranks

    def _run(self, incoming: Iterator[Incoming], count: int, use_tqdm: bool) -> list[RequestOutput]:
        """Answer `count` requests. Where steps run beside the host, requests are made ready beside the steps."""
        opened: list[Request] = []
        outputs: list[RequestOutput] = []
        most = self._engine.config.max_num_batched_tokens

        def open_some(num_tokens: float) -> None:
            for request, text in self._next_batch(incoming, num_tokens):
                opened.append(request)
                outputs.append(self._open(request, text))

        def use_time(plan: StepPlan) -> None:
            if len(opened) == count:
                collector.pass_turn()
                return
            open_some(min(TIMES_OPENED * int(plan.num_tokens.sum()), STEPS_OPENED * most))
            if len(opened) == count:
                collector.look()

        with BatchProgress(count, enabled=use_tqdm) as progress:
            try:
                with interrupts_deferred() as interrupts, CollectorAtRest() as collector:
                    while len(opened) < count or len(self._outputs):
                        if not self._engine.loop.executor.num_in_flight:
                            open_some(most if self._engine.loop.executor.lateness else math.inf)
                            interrupts.deliver()
                        for output in self._turn(use_time):
                            progress.update(output)
                        self._raise_rejected(opened)
                        interrupts.deliver()
            except BaseException:
                self._abandon(opened)
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

    def _next_batch(self, incoming: Iterator[Incoming], num_tokens: float) -> list[Incoming]:
        """Requests of so many tokens. All are checked before any starts, unless they are made ready beside the steps:
        then the loop's own check is soon enough."""
        is_beside = self._engine.loop.executor.lateness > 0
        batch = []
        for request, text in incoming:
            if not is_beside:
                self._engine.loop.check(request)
            batch.append((request, text))
            num_tokens -= len(request.prompt_token_ids)
            if num_tokens <= 0:
                break
        return batch

    def _lone_turn(self) -> list[RequestOutput]:
        with interrupts_deferred():
            return self._turn()

    def _turn(self, meanwhile: Callable[[StepPlan], None] | None = None) -> list[RequestOutput]:
        """One step of the engine, which no Ctrl-C may cut short; the outputs that changed."""
        changed = []
        for update in self._engine.loop.step(meanwhile):
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
    return EngineConfig(model=str(model), **settled(settings))
