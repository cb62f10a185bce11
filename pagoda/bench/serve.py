"""A whole benchmark of a server: one workload at one pace, or at one after the other."""

from __future__ import annotations

import asyncio
import os
import platform
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from pagoda.bench.arrivals import Pace
from pagoda.bench.client import Client, Target
from pagoda.bench.conversation import Conversation, Question
from pagoda.bench.lengths import Lengths
from pagoda.bench.load import Extent, Load, Run
from pagoda.bench.record import BenchRecord, LevelRecord, find_saturation, level_record, now
from pagoda.bench.synthetic import Synthetic
from pagoda.bench.trace import TraceWriter
from pagoda.bench.workloads import TokenRequest


@dataclass(frozen=True)
class Workload:
    """`conversations` may end; `warmup` does not."""

    description: str
    conversations: Iterator[Conversation]
    warmup: Iterator[Conversation]

    @classmethod
    def drawn(cls, synthetic: Synthetic, description: str) -> Workload:
        # The same iterator: no level of a sweep finds the prompts of another in the server's cache.
        endless = synthetic.conversations()
        return cls(description, endless, endless)

    @classmethod
    def fixed(cls, requests: list[TokenRequest], description: str) -> Workload:
        questions = (Question(request.prompt_token_ids, request.max_tokens) for request in requests)
        return cls(description, (Conversation((question,)) for question in questions), _short().conversations())

    @classmethod
    def recorded(cls, trace: list[Conversation], description: str) -> Workload:
        return cls(description, iter(trace), _short().conversations())


def _short() -> Synthetic:
    return Synthetic(Lengths("constant", (32,)), Lengths("constant", (8,)), seed=1)


@dataclass(frozen=True)
class Step:
    """One pace; `value` is its place in a sweep. Without a pace a trace is played at its own times."""

    pace: Pace | None
    value: float | None = None

    def __str__(self) -> str:
        return str(self.pace) if self.pace is not None else "as recorded"


@dataclass(frozen=True)
class Plan:
    target: Target
    workload: Workload
    steps: list[Step]
    extent: Extent
    swept: str | None = None
    slo: dict[str, float] = field(default_factory=dict)
    speed: float = 1.0


ShowRun = Callable[[Step, Run], None]
ShowLevel = Callable[[LevelRecord], None]


async def bench(
    plan: Plan, show: ShowRun | None = None, show_level: ShowLevel | None = None, trace: TraceWriter | None = None
) -> BenchRecord:
    """Ctrl-C ends it early, with a record of what there is."""
    client = Client(plan.target)
    try:
        found = await client.first_model()  # also where a model is named: is anybody there?
    finally:
        client.close()
    target = plan.target if plan.target.model else replace(plan.target, model=found)
    levels: list[LevelRecord] = []
    for step in plan.steps:
        load = Load(target, step.pace, plan.extent, trace)
        watch = (lambda run, step=step: show(step, run)) if show is not None else None
        with _interrupts(load.stop):
            run = await load.measure(plan.workload.conversations, plan.workload.warmup, watch, plan.speed)
        levels.append(level_record(run, str(step), step.value, plan.slo))
        if show_level is not None:
            show_level(levels[-1])
        if run.was_interrupted:
            break
    return BenchRecord(
        url=target.url,
        model=target.model,
        date=now(),
        workload=plan.workload.description,
        extent=str(plan.extent),
        machine=f"Client: {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        swept=plan.swept,
        levels=levels,
        saturation=find_saturation(levels, plan.swept) if plan.swept else None,
    )


class _interrupts:
    """While it holds, Ctrl-C calls `stop`; a second one is an ordinary Ctrl-C."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        self._before = signal.getsignal(signal.SIGINT)

    def __enter__(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._handle)

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, self._before)

    def _handle(self) -> None:
        self.__exit__()
        self._stop()
