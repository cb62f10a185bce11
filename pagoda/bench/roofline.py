"""What a run took beside what it could have taken at the least: the roofline of its steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from pagoda.bench.demand import Demand, Work
from pagoda.bench.shapes import ShapeReader, StepShape
from pagoda.bench.steps import TimedStep
from pagoda.engine.build import Engine
from pagoda.kernels.base import Arithmetic
from pagoda.kernels.peaks import Peaks


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """Some steps together. Bytes and operations are the least they could do with."""

    name: str
    num_steps: int
    num_tokens: int
    seconds: float
    num_bytes: int
    operations: dict[Arithmetic, int]
    reading_seconds: float
    """What the bytes take at the device's peak."""
    computing_seconds: float
    """What the operations take at the device's peaks."""
    least_seconds: float
    """A step can be no shorter than its reading, nor than its computing: the longer of the two, step by step."""
    limit: Literal["memory", "arithmetic"]
    """Which of the two was longer, all in all."""
    share: float
    """Of the ceiling, what was reached."""


@dataclass(frozen=True, slots=True)
class StepWork:
    """One step with what it asked for."""

    shape: StepShape
    work: Work
    seconds: float


def work_of(engine: Engine, steps: Sequence[TimedStep]) -> list[StepWork]:
    """The steps of a run that began with all rows empty."""
    demand = Demand.of(engine)
    config = engine.config
    groups, length = engine.model.cache_groups(), engine.memory.max_model_len
    reader = ShapeReader(groups, config.block_size, config.num_rows, length)
    shapes = [reader.read(step.plan) for step in steps]
    return [StepWork(shape, demand.work(shape), s.seconds) for shape, s in zip(shapes, steps, strict=True)]


def bound(name: str, steps: Iterable[StepWork], peaks: Peaks) -> Bound:
    operations: Counter[Arithmetic] = Counter()
    num_steps = num_tokens = num_bytes = 0
    seconds = reading = computing = least = 0.0
    for step in steps:
        num_steps += 1
        num_tokens += step.shape.num_tokens
        seconds += step.seconds
        num_bytes += step.work.num_bytes
        operations.update(step.work.operations)
        own_reading, own_computing = reading_seconds(step.work, peaks), computing_seconds(step.work, peaks)
        reading += own_reading
        computing += own_computing
        least += max(own_reading, own_computing)
    return Bound(
        name=name,
        num_steps=num_steps,
        num_tokens=num_tokens,
        seconds=seconds,
        num_bytes=num_bytes,
        operations=dict(operations),
        reading_seconds=reading,
        computing_seconds=computing,
        least_seconds=least,
        limit="memory" if reading >= computing else "arithmetic",
        share=least / seconds if seconds else 0.0,
    )


def bounds(steps: Sequence[StepWork], peaks: Peaks) -> list[Bound]:
    """By phase, as far as there are such steps, and of all together."""
    found = [
        bound("prompts", (step for step in steps if not step.shape.is_decode), peaks),
        bound("decode", (step for step in steps if step.shape.is_decode), peaks),
        bound("all", steps, peaks),
    ]
    return [one for one in found if one.num_steps]


def reading_seconds(work: Work, peaks: Peaks) -> float:
    return work.num_bytes / peaks.bytes_per_second


def computing_seconds(work: Work, peaks: Peaks) -> float:
    return sum(count / peaks.operations_per_second[kind] for kind, count in work.operations.items())
