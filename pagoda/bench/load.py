"""Puts a workload on a server and collects what became of each request."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pagoda.bench.arrivals import Pace
from pagoda.bench.client import Client, Outcome, Target
from pagoda.bench.conversation import Conversation, Question, as_messages, continued
from pagoda.bench.trace import TraceWriter, played
from pagoda.core.errors import InvalidRequest

PROGRESS_SECONDS = 0.25
WARMUP_AT_ONCE = 8  # where no concurrency is set
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured: so many conversations, or as many as are begun in so many seconds, or all there are."""

    num_requests: int | None = None
    duration: float | None = None
    warmup: int = 0
    """Conversations before the measurement, which are not counted."""

    def __post_init__(self) -> None:
        if self.num_requests is not None and self.num_requests < 1:
            raise InvalidRequest("--num-requests", f"must be at least 1, not {self.num_requests}")
        if self.duration is not None and not self.duration > 0:
            raise InvalidRequest("--duration", f"must be above 0, not {self.duration}")
        if self.warmup < 0:
            raise InvalidRequest("--warmup", f"must not be negative, not {self.warmup}")

    def __str__(self) -> str:
        limits = []
        if self.num_requests is not None:
            limits.append(f"{self.num_requests:,} requests")
        if self.duration is not None:
            limits.append(f"{self.duration:g} s")
        return " or ".join(limits) or "the whole trace"


@dataclass
class Run:
    """What was measured, while it is being measured and after."""

    started: float = 0.0
    ended: float = 0.0
    """Rates count what came between these two."""
    outcomes: list[Outcome] = field(default_factory=list)
    num_running: int = 0
    is_warm: bool = False
    was_interrupted: bool = False
    largest_lag: float = 0.0
    """How much later than due a request was sent; more than some milliseconds, and the client was the bottleneck."""
    cpu_seconds: float = 0.0
    """Processor time of this client."""


Show = Callable[[Run], None]


class Load:
    """One workload at one pace. `stop` ends it early: what is under way is cut off."""

    def __init__(self, target: Target, pace: Pace | None, extent: Extent, record: TraceWriter | None = None) -> None:
        self._target = target
        self._pace = pace
        self._extent = extent
        self._record = record
        self._stopping = asyncio.Event()
        self.run = Run()

    def stop(self) -> None:
        self._stopping.set()

    async def measure(
        self,
        conversations: Iterator[Conversation],
        warmup: Iterator[Conversation],
        show: Show | None = None,
        speed: float = 1.0,
    ) -> Run:
        """Without a pace the conversations are sent at the times they carry."""
        client = Client(self._target)
        try:
            async with self._shown(show):
                await self._until_stopped(self._warm_up(client, warmup))
                self._begin()
                if self._pace is None:
                    work = self._send_when_due(client, played(conversations, speed))
                elif self._pace.concurrency is not None:
                    work = self._keep_busy(client, conversations, self._pace.concurrency)
                else:
                    due = self._pace.times(random.Random(0))
                    work = self._send_when_due(client, zip(due, conversations, strict=False))
                await self._until_stopped(work)
                self._end()
        finally:
            client.close()
        return self.run

    def _begin(self) -> None:
        self.run.is_warm = True
        self.run.outcomes.clear()
        self.run.cpu_seconds = time.process_time()
        self.run.started = time.perf_counter()

    def _end(self) -> None:
        run = self.run
        run.cpu_seconds = time.process_time() - run.cpu_seconds
        run.ended = time.perf_counter()
        run.was_interrupted = self._stopping.is_set()
        if self._extent.duration is not None and not run.was_interrupted:
            run.ended = min(run.ended, run.started + self._extent.duration)

    async def _warm_up(self, client: Client, conversations: Iterator[Conversation]) -> None:
        count = self._extent.warmup
        at_once = min(count, (self._pace and self._pace.concurrency) or WARMUP_AT_ONCE)
        left = iter(range(count))

        async def one() -> None:
            for _ in left:
                await self._hold(client, next(conversations))

        await asyncio.gather(*(one() for _ in range(at_once)))

    async def _keep_busy(self, client: Client, conversations: Iterator[Conversation], concurrency: int) -> None:
        taken = self._taken(conversations)

        async def one() -> None:
            for conversation in taken:
                await self._hold(client, conversation)

        await asyncio.gather(*(one() for _ in range(concurrency)))

    async def _send_when_due(self, client: Client, due: Iterator[tuple[float, Conversation]]) -> None:
        async with asyncio.TaskGroup() as tasks:
            for at, conversation in self._taken(due):
                if self._extent.duration is not None and at >= self._extent.duration:
                    break
                await asyncio.sleep(max(0.0, self.run.started + at - time.perf_counter()))
                self.run.largest_lag = max(self.run.largest_lag, time.perf_counter() - self.run.started - at)
                tasks.create_task(self._hold(client, conversation))

    def _taken(self, items: Iterator[Item]) -> Iterator[Item]:
        """As many as are still to be begun."""
        extent, run = self._extent, self.run
        for number, item in enumerate(items):
            if extent.num_requests is not None and number >= extent.num_requests:
                return
            if extent.duration is not None and time.perf_counter() - run.started >= extent.duration:
                return
            yield item

    async def _hold(self, client: Client, conversation: Conversation) -> None:
        """Have one conversation, turn by turn, until it is over or an answer fails."""
        num_turns = len(conversation.questions)
        prompt = conversation.questions[0].prompt
        if num_turns > 1 and self._target.endpoint == "chat" and isinstance(prompt, str):
            prompt = as_messages(prompt)
        for number, question in enumerate(conversation.questions):
            outcome = await self._ask(client, Question(prompt, question.max_tokens), keeps_text=number + 1 < num_turns)
            if outcome.error or number + 1 == num_turns:
                return
            prompt = continued(prompt, outcome.text, conversation.questions[number + 1].prompt)

    async def _ask(self, client: Client, question: Question, keeps_text: bool) -> Outcome:
        run = self.run
        if self._record is not None and run.is_warm:
            self._record.add(time.perf_counter() - run.started, question)
        outcome = Outcome(time.perf_counter())
        run.outcomes.append(outcome)
        run.num_running += 1
        try:
            await client.ask(question, outcome, keeps_text)
        finally:
            run.num_running -= 1
        return outcome

    async def _until_stopped(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((task, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            if not task.done():
                task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    @asynccontextmanager
    async def _shown(self, show: Show | None) -> AsyncIterator[None]:
        async def keep_showing(show: Show) -> None:
            while True:
                show(self.run)
                await asyncio.sleep(PROGRESS_SECONDS)

        task = asyncio.ensure_future(keep_showing(show)) if show is not None else None
        try:
            yield
        finally:
            if task is not None:
                task.cancel()
