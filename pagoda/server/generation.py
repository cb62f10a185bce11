"""From typed requests to answers: admission, the engine's stream, and what is new since the last look."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import NamedTuple

from pagoda.core.errors import PagodaError
from pagoda.core.request import FinishReason, Pooling, Request, Task
from pagoda.core.sampling_params import SamplingParams
from pagoda.engine.desk import Delivery
from pagoda.engine.output import CompletionOutput, Logprob, RequestOutput
from pagoda.engine.remote import RemoteEngine
from pagoda.observability.json_log import current_request_id
from pagoda.server.admission import Admission
from pagoda.server.call import Run, current_call
from pagoda.server.errors import ApiError
from pagoda.server.keys import ApiKey
from pagoda.server.observer import RequestObserver

logger = logging.getLogger("pagoda.requests")
# What a client that does not read may have waiting for it here, beside what its connection holds.
MAX_UNREAD_TOKENS = 16


@dataclass(frozen=True)
class Job:
    """One call: one prompt or several, all with the same parameters."""

    name: str
    """What the answer is called; the engine's requests carry it, too."""
    prompts: list[tuple[str | None, list[int]]]
    sampling: SamplingParams
    key: ApiKey
    priority: int = 0
    cache_salt: str = ""
    task: Task = "generate"
    pooling: Pooling = "mean"
    deadline: float | None = None
    """Of the monotonic clock; what is unfinished then ends in an error."""

    @property
    def num_prompt_tokens(self) -> int:
        return sum(len(token_ids) for _, token_ids in self.prompts)

    def requests(self) -> list[tuple[Request, str | None]]:
        # One caller's cached prefixes are nobody else's business: not even by how soon an answer comes.
        salt = f"{self.key.name}/{self.cache_salt}" if self.key.name or self.cache_salt else ""
        return [
            (
                Request(
                    request_id=f"{self.name}-{number}",
                    prompt_token_ids=tuple(token_ids),
                    sampling=self.sampling,
                    task=self.task,
                    pooling=self.pooling,
                    priority=self.priority,
                    cache_salt=salt,
                    label=current_request_id.get(),
                ),
                text,
            )
            for number, (text, token_ids) in enumerate(self.prompts)
        ]


class Generation:
    """Runs jobs on the engine, within what may be under way at once."""

    def __init__(
        self, engine: RemoteEngine, admission: Admission, observer: RequestObserver, log_prompts: bool = False
    ) -> None:
        self._engine = engine
        self._admission = admission
        self._observer = observer
        self._log_prompts = log_prompts

    @asynccontextmanager
    async def run(self, job: Job, delivery: Delivery) -> AsyncIterator[AsyncGenerator[tuple[int, RequestOutput], None]]:
        """The job's outputs as they grow, each with the number of its prompt. Leaving ends what is unfinished."""
        delivery.max_unread = MAX_UNREAD_TOKENS
        delivery.deadline = job.deadline
        with ExitStack() as stack:
            run = self._begin(job, stack)
            streams = [self._engine.stream(request, text, delivery) for request, text in job.requests()]
            outputs = _numbered(streams[0], run) if len(streams) == 1 else _merged(streams, run, self._at_once(job))
            try:
                yield outputs
            finally:
                await outputs.aclose()
                for stream in streams:
                    await stream.aclose()
                job.key.spend(run.num_new_tokens, time.monotonic())
                self._end(run)

    def _at_once(self, job: Job) -> int:
        """A call for embeddings may have many more inputs than the queue has places."""
        return self._admission.num_at_once if job.task == "embed" else len(job.prompts)

    def _begin(self, job: Job, stack: ExitStack) -> Run:
        """Let the job in, or raise what its caller is to be told."""
        lengths = sorted((len(token_ids) for _, token_ids in job.prompts), reverse=True)[: self._at_once(job)]
        try:
            stack.enter_context(self._admission.enter(job.key, len(lengths), sum(lengths), job.num_prompt_tokens))
        except ApiError as error:
            if error.status == 429:
                self._observer.statistics.key(job.key.name).num_refused += 1
            raise
        run = Run(job)
        if (call := current_call()) is not None:
            call.runs.append(run)
        self._observer.begin(run)
        fields = {"engine_id": job.name, "prompt_tokens": job.num_prompt_tokens, "key": job.key.name}
        logger.info("accepted", extra={"fields": fields})
        return run

    def _end(self, run: Run) -> None:
        self._observer.end(run)
        if self._log_prompts:
            prompts = [text if text is not None else token_ids for text, token_ids in run.job.prompts]
            answers = {number: [answer.text for answer in output.outputs] for number, output in run.outputs.items()}
            logger.info("texts", extra={"fields": {"engine_id": run.job.name, "prompts": prompts, "answers": answers}})

    async def whole(self, job: Job) -> list[RequestOutput]:
        """All outputs, once they are finished. Nothing is shown before, so another engine may run them again."""
        finished: dict[int, RequestOutput] = {}
        async with self.run(job, Delivery()) as outputs:
            async for number, output in outputs:
                finished[number] = output
        return [finished[number] for number in range(len(job.prompts))]


Stream = AsyncGenerator[RequestOutput, None]
Numbered = AsyncGenerator[tuple[int, RequestOutput], None]


async def _numbered(stream: Stream, run: Run) -> Numbered:
    try:
        async for output in stream:
            run.outputs[0] = output
            yield 0, output
    except PagodaError as error:
        run.error = error
        raise


async def _merged(streams: list[Stream], run: Run, most: int) -> Numbered:
    """Whatever comes next, from whichever stream. A stream begins when it is first asked: so many at a time are."""
    pending: dict[asyncio.Future[RequestOutput], int] = {}
    later = iter(range(len(streams)))

    def ask(number: int) -> None:
        pending[asyncio.ensure_future(anext(streams[number]))] = number

    for number in itertools.islice(later, most):
        ask(number)
    try:
        while pending:
            done, _ = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=pending.__getitem__):
                number = pending.pop(task)
                try:
                    output = task.result()
                except StopAsyncIteration:
                    for following in itertools.islice(later, 1):
                        ask(following)
                    continue
                ask(number)
                run.outputs[number] = output
                yield number, output
    except PagodaError as error:
        run.error = error
        raise
    finally:
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)


class News(NamedTuple):
    """What one answer has more than at the last look."""

    text: str
    token_ids: list[int]
    logprobs: list[dict[int, Logprob]]
    finish_reason: FinishReason | None
    stop_reason: int | str | None


class Progress:
    """How much of one answer has been shown."""

    def __init__(self) -> None:
        self._num_characters = 0
        self._num_tokens = 0
        self.is_finished = False

    def look(self, answer: CompletionOutput) -> News | None:
        """What is new; None if nothing is."""
        if self.is_finished:
            return None
        text = answer.text[self._num_characters :]
        token_ids = answer.token_ids[self._num_tokens :]
        if not text and not token_ids and not answer.finished:
            return None
        logprobs = answer.logprobs[self._num_tokens :] if answer.logprobs is not None else []
        self._num_characters += len(text)
        self._num_tokens += len(token_ids)
        self.is_finished = answer.finished
        return News(text, token_ids, logprobs, answer.finish_reason, answer.stop_reason)
