"""What each step of an engine was and how long it took, seen from before the executor."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from pagoda.core.plan import RowPayload, StepPlan
from pagoda.core.result import StepResult
from pagoda.engine.build import Engine
from pagoda.executor import Executor
from pagoda.kernels.base import StoredWeight, Weight

if TYPE_CHECKING:
    from pagoda.executor.cuda.marks import DeviceMarks


class StepCosts(msgspec.Struct, frozen=True):
    """Means over the steps of a run."""

    num_steps: int
    step_seconds: float
    host_seconds: float
    """Of a step, what passed outside the device: planning, sending, settling what came back."""
    device_wait_share: float | None
    """Of the run, what passed between the end of a step on the device and the beginning of the next; None: unknown."""


def together(runs: Sequence[StepCosts]) -> StepCosts | None:
    """The means over the steps of several runs; None where there was none."""
    num_steps = sum(run.num_steps for run in runs)
    if not num_steps:
        return None
    seconds = sum(run.step_seconds * run.num_steps for run in runs)
    host = sum(run.host_seconds * run.num_steps for run in runs)
    shares = [(run.device_wait_share, run.step_seconds * run.num_steps) for run in runs]
    waited = [share * own for share, own in shares if share is not None]
    return StepCosts(num_steps, seconds / num_steps, host / num_steps, sum(waited) / seconds if waited else None)


@dataclass(frozen=True, eq=False, slots=True)
class TimedStep:
    plan: StepPlan
    seconds: float
    """From the end of the step before, or from the start of the run, until its tokens were there."""


@dataclass(eq=False)
class StepClock:
    """Stands before an executor and reads the clock around its calls. Plans are kept to be looked at after the run."""

    executor: Executor
    marks: DeviceMarks | None = None
    clock: Callable[[], float] = time.perf_counter
    _plans: list[StepPlan] = field(default_factory=list)
    _ends: list[float] = field(default_factory=list)  # of the plans whose results were collected
    _started: float = 0.0
    _on_device: float = 0.0

    @classmethod
    def before(cls, engine: Engine) -> StepClock:
        """From now on all steps of this engine pass through the clock."""
        marks = None
        if engine.config.device == "cuda":
            from pagoda.executor.cuda.marks import DeviceMarks  # brings torch

            marks = DeviceMarks()
        clock = cls(engine.loop.executor, marks)
        engine.loop.executor = clock
        return clock

    def restart(self) -> None:
        """Between two runs, with nothing under way: what was seen is forgotten."""
        self._plans.clear()
        self._ends.clear()
        if self.marks is not None:
            self.marks.clear()
        self._on_device = 0.0
        self._started = self.clock()

    def steps(self) -> list[TimedStep]:
        """Those that computed something, and whose tokens came back."""
        found: list[TimedStep] = []
        before = self._started
        for plan, end in zip(self._plans, self._ends, strict=False):
            if not plan.is_empty:
                found.append(TimedStep(plan, end - before))
                before = end
        return found

    def costs(self, seconds: float) -> StepCosts:
        """Over a run of so many seconds."""
        num_steps = len(self.steps())
        waited = self.marks.waited_seconds() / seconds if self.marks is not None and seconds else None
        mean = 1 / num_steps if num_steps else 0.0
        return StepCosts(num_steps, seconds * mean, (seconds - self._on_device) * mean, waited)

    @property
    def lateness(self) -> int:
        return self.executor.lateness

    @property
    def num_in_flight(self) -> int:
        return self.executor.num_in_flight

    def submit(self, plan: StepPlan, payloads: Sequence[RowPayload]) -> None:
        marks = None if plan.is_empty else self.marks
        start = self.clock()
        if marks is not None:
            marks.begin()
        self.executor.submit(plan, payloads)
        if marks is not None:
            marks.end()
        self._plans.append(plan)
        if not self.executor.lateness:  # then the step was computed in this very call
            self._on_device += self.clock() - start

    def collect(self) -> StepResult:
        start = self.clock()
        result = self.executor.collect()
        end = self.clock()
        self._on_device += end - start
        self._ends.append(end)
        return result

    @property
    def num_halved_steps(self) -> int:
        return self.executor.num_halved_steps

    def use_idle_time(self) -> bool:
        return self.executor.use_idle_time()

    def allocated_bytes(self) -> dict[str, int]:
        return self.executor.allocated_bytes()

    def stored(self, weight: Weight) -> StoredWeight:
        return self.executor.stored(weight)

    def close(self) -> None:
        self.executor.close()
