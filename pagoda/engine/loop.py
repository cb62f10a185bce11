"""The loop: plan, execute, commit, publish. It sees counts and token ids, never text, JSON or HTTP."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable

from pagoda.core.errors import EngineError, InvalidRequest, PagodaError
from pagoda.core.plan import RowPayload, StepPlan
from pagoda.core.request import Request
from pagoda.decoding import SeedSource
from pagoda.engine.answers import AnswerBook
from pagoda.engine.messages import (
    Aborted,
    AbortRequest,
    AddRequest,
    Message,
    NewTokens,
    PauseRequest,
    PushBackRequest,
    Rejected,
    ResumeRequest,
    StopSequence,
    Update,
)
from pagoda.engine.request_log import note
from pagoda.executor import Executor
from pagoda.kv_cache import extend_chain, root_hash
from pagoda.observability.counters import EngineCounters
from pagoda.observability.steps import StepRecord, recent_steps
from pagoda.scheduler import Cancel, Pause, PushBack, Resume, Scheduler, Stop, Submit


class EngineLoop:
    """Messages go into the inbox from any thread; one thread turns the loop by calling `step`."""

    def __init__(
        self,
        scheduler: Scheduler,
        executor: Executor,
        *,
        model_name: str,
        vocab_size: int,
        max_model_len: int,
        end_token_ids: Iterable[int] = (),
        seeds: SeedSource | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.scheduler = scheduler
        self.executor = executor
        self.max_model_len = max_model_len
        self.vocab_size = vocab_size
        self.inbox: deque[Message] = deque()
        self.counters = EngineCounters()
        self.steps = recent_steps()
        self._model_name = model_name
        self._seeds = seeds or SeedSource()
        self._clock = clock
        cache = scheduler.cache
        self._answers = AnswerBook(cache.page_size, cache.enable_prefix_caching, end_token_ids)
        self._plans: deque[StepPlan] = deque()
        self._updates: list[Update] = []
        self._step_start = 0.0
        self._failure: EngineError | None = None

    @property
    def has_failed(self) -> bool:
        return self._failure is not None

    @property
    def has_work(self) -> bool:
        return bool(self.inbox or self._updates or self._plans or self.scheduler.has_work)

    def step(self, meanwhile: Callable[[StepPlan], None] | None = None) -> list[Update]:
        """One turn. With results that come k steps late, the tokens are those of a plan made k turns ago.

        `meanwhile` is called once the device has its step. If it raises, the next turn publishes what this one would
        have.
        """
        plan = self._begin_step()
        try:
            if meanwhile is not None:
                meanwhile(plan)
        finally:
            self._end_step()
        updates, self._updates = self._updates, []
        return updates

    def use_idle_time(self) -> bool:
        """To be called while there is no work, until there is no more to do: False."""
        try:
            return self.executor.use_idle_time()
        except BaseException as error:
            raise self._failed("beside its steps", error) from error

    def _begin_step(self) -> StepPlan:
        if self._failure is not None:
            raise self._failure
        try:
            self._drain_inbox()
            self._step_start = self._clock()
            plan = self.scheduler.plan(self._step_start)
            self._plans.append(plan)
            self.executor.submit(plan, self._payloads(plan))
        except BaseException as error:
            raise self._failed("in a step", error) from error
        return plan

    def _end_step(self) -> None:
        try:
            if self.executor.lateness:
                self._drain_inbox()  # while the device is busy, not when it waits for the next plan
            while self._has_result_due():
                self._commit_oldest(self._step_start)
        except BaseException as error:
            raise self._failed("in a step", error) from error

    def _failed(self, where: str, error: BaseException) -> EngineError:
        """Plans and results may no longer match: nothing that comes after could be trusted."""
        self._failure = EngineError(f"the engine stopped {where}: {type(error).__name__}: {error}")
        return self._failure

    def _has_result_due(self) -> bool:
        waiting = self.executor.num_in_flight
        return waiting > self.executor.lateness or (waiting > 0 and not self.scheduler.has_work)

    def _commit_oldest(self, start: float) -> None:
        result = self.executor.collect()
        plan = self._plans.popleft()
        now = self._clock()
        outcome, updates = self._answers.take(plan, result, now)
        self.scheduler.commit(outcome)
        self._updates += updates
        num_tokens, num_drawn = sum(plan.num_tokens.tolist()), len(result.token_ids)
        self.counters.num_steps += 1
        self.counters.num_computed_tokens += num_tokens
        self.counters.num_drawn_tokens += num_drawn
        self.steps.append(StepRecord(plan.step_id, now, now - start, len(plan.rows), num_tokens, num_drawn))

    def _payloads(self, plan: StepPlan) -> list[RowPayload]:
        payloads = []
        for start in plan.started:
            payload, news = self._answers.start(start, self._clock())
            payloads.append(payload)
            if news is not None:
                self._updates.append(news)
                self.counters.num_prompt_tokens += payload.num_prompt_tokens
                self.counters.num_cached_tokens += news.num_cached_tokens
        return payloads

    def _drain_inbox(self) -> None:
        while self.inbox:
            message = self.inbox.popleft()
            match message:
                case AddRequest():
                    self._add(message.request)
                case AbortRequest():
                    self._abort(message.request_id)
                case StopSequence():
                    sequence = self._answers.stop(message.request_id, message.sample_index)
                    if sequence is not None:
                        self.scheduler.stop(Stop(sequence, "stop"))
                case PushBackRequest():
                    accepted = self._answers.get(message.request_id)
                    for answer in accepted.answers.values() if accepted else ():
                        self.scheduler.push_back(PushBack(answer.sequence))
                case PauseRequest():
                    self.scheduler.pause(Pause(message.request_id))
                case ResumeRequest():
                    self.scheduler.resume(Resume(message.request_id))

    def _add(self, request: Request) -> None:
        try:
            self.check(request)
            self._submit(request)
        except PagodaError as error:
            self._updates.append(Rejected.of(request.request_id, error))
            note("rejected", request, error=type(error).__name__)

    def check(self, request: Request) -> None:
        """Everything that can be said of a request without looking at the others."""
        if request.task not in ("generate", "embed"):
            raise InvalidRequest("task", f"{request.task!r} is not supported yet; this engine generates and embeds")
        if request.task == "embed" and request.sampling.n != 1:
            raise InvalidRequest("n", f"{request.sampling.n} is too many: a text has one vector")
        if request.adapter:
            raise InvalidRequest("adapter", f"no adapter {request.adapter!r} is loaded")
        prompt = request.prompt_token_ids
        if not prompt:
            raise InvalidRequest("prompt", "is empty; it needs at least one token")
        if len(prompt) >= self.max_model_len:
            raise InvalidRequest(
                "prompt",
                f"has {len(prompt)} tokens; max_model_len is {self.max_model_len}, the answer's tokens included",
            )
        if min(prompt) < 0 or max(prompt) >= self.vocab_size:
            raise InvalidRequest("prompt", f"token ids must lie between 0 and {self.vocab_size - 1}")
        request.sampling.validate_for(self.vocab_size, self.max_model_len)

    def _submit(self, request: Request) -> None:
        sampling = request.sampling
        cache = self.scheduler.cache
        root = root_hash(self._model_name, request.adapter, request.cache_salt, request.media_digests)
        names: tuple[bytes, ...] = ()
        if cache.enable_prefix_caching:
            names = tuple(extend_chain(root, request.prompt_token_ids, cache.page_size))
        num_prompt = len(request.prompt_token_ids)
        limit = self.max_model_len
        embeds = request.task == "embed"
        if embeds:
            limit = num_prompt + 1  # it ends where the first token would have been drawn
        elif sampling.max_tokens is not None:
            limit = min(limit, num_prompt + sampling.max_tokens)
        submit = Submit(
            request_id=request.request_id,
            num_prompt_tokens=num_prompt,
            max_total_tokens=limit,
            num_samples=sampling.n,
            priority=request.priority,
            page_names=names,
            # What is cached of a prefix are keys and values: neither scores nor the sum of hidden states.
            reads_prefix_cache=sampling.prompt_logprobs is None and not (embeds and request.pooling == "mean"),
        )
        self.scheduler.submit(submit)
        self._answers.accept(request, self._seeds.seed_for(sampling), limit, names, root)
        self.counters.num_requests += 1
        note("accepted", request, prompt_tokens=num_prompt, num_samples=sampling.n)

    def _abort(self, request_id: str) -> None:
        accepted = self._answers.get(request_id)
        if accepted is not None:
            self.scheduler.cancel(Cancel(request_id))
            now = self._clock()
            for sample_index in sorted(accepted.unfinished):
                self._updates.append(NewTokens(request_id, sample_index, now, (), finish_reason="abort"))
            self._answers.forget(request_id)
            note("aborted", accepted.request)
        self._updates.append(Aborted(request_id))
