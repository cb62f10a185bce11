from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from pagoda.bench.steps import StepClock, StepCosts, together
from pagoda.core.plan import StepPlan
from tests.bench.plans import plan_of


@dataclass
class Time:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass
class SlowExecutor:
    """A step of its takes a second: in `submit` if results are never late, else in the wait for them."""

    time: Time
    lateness: int = 0
    waiting: list[StepPlan] = field(default_factory=list)

    @property
    def num_in_flight(self) -> int:
        return len(self.waiting)

    def submit(self, plan: StepPlan, payloads: Sequence[Any]) -> None:
        self.waiting.append(plan)
        self.time.now += 0.25 if self.lateness else 1.0

    def collect(self) -> int:
        if self.lateness:
            self.time.now += 1.0
        return self.waiting.pop(0).step_id


@dataclass
class Marks:
    log: list[str] = field(default_factory=list)

    def begin(self) -> None:
        self.log.append("begin")

    def end(self) -> None:
        self.log.append("end")

    def clear(self) -> None:
        self.log.clear()

    def waited_seconds(self) -> float:
        return 0.5


def clock_of(lateness: int, marks: Marks | None = None) -> tuple[StepClock, Time]:
    time = Time()
    clock = StepClock(SlowExecutor(time, lateness), marks, time)  # type: ignore[arg-type]
    clock.restart()
    return clock, time


def test_a_step_lasts_from_the_end_of_the_one_before() -> None:
    clock, time = clock_of(lateness=0)
    for number in range(3):
        time.now += 0.5  # the host's
        clock.submit(plan_of({0: 1}, step_id=number), ())
        assert clock.num_in_flight == 1
        assert clock.collect() == number
    assert [step.seconds for step in clock.steps()] == pytest.approx([1.5, 1.5, 1.5])
    costs = clock.costs(4.5)
    assert (costs.num_steps, costs.device_wait_share) == (3, None)
    assert costs.step_seconds == pytest.approx(1.5)
    assert costs.host_seconds == pytest.approx(0.5), "a step that is never late is computed where it is submitted"


def test_with_late_results_only_the_wait_for_them_is_the_device() -> None:
    marks = Marks()
    clock, time = clock_of(lateness=1, marks=marks)
    clock.submit(plan_of({0: 1}, step_id=0), ())
    for number in (1, 2):
        clock.submit(plan_of({0: 1}, step_id=number), ())
        clock.collect()
    clock.collect()
    costs = clock.costs(time.now - 100.0)
    assert costs.num_steps == 3 and costs.host_seconds == pytest.approx(0.25)
    assert sum(step.seconds for step in clock.steps()) == pytest.approx(3.75)
    assert costs.device_wait_share == pytest.approx(0.5 / 3.75)
    assert marks.log == ["begin", "end"] * 3


def test_steps_without_rows_and_steps_under_way_do_not_count() -> None:
    marks = Marks()
    clock, _ = clock_of(lateness=0, marks=marks)
    clock.submit(plan_of({}), ())
    clock.collect()
    clock.submit(plan_of({0: 3, 1: 1}), ())
    clock.collect()
    clock.submit(plan_of({0: 1}), ())
    [step] = clock.steps()
    np.testing.assert_array_equal(step.plan.num_tokens, [3, 1])
    assert step.seconds == pytest.approx(2.0), "the time of an empty one belongs to the next"
    assert len(marks.log) == 4
    clock.collect()
    clock.restart()
    assert clock.steps() == [] and clock.costs(0.0).num_steps == 0 and marks.log == []


def test_runs_together_count_by_their_steps() -> None:
    found = together([StepCosts(1, 4.0, 1.0, 0.5), StepCosts(3, 2.0, 0.2, 0.0)])
    assert found is not None and found.num_steps == 4
    assert found.step_seconds == pytest.approx(10 / 4) and found.host_seconds == pytest.approx(1.6 / 4)
    assert found.device_wait_share == pytest.approx(2 / 10)
    no_clock = together([StepCosts(2, 1.0, 0.1, None)])
    assert no_clock is not None and no_clock.device_wait_share is None
    assert together([]) is None
