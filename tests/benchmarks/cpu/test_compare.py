"""Who runs a long task again, and who sits it out."""

from __future__ import annotations

from pathlib import Path

from benchmarks.cpu.busy import Busyness
from benchmarks.cpu.compare import near_the_best, sits_out
from benchmarks.cpu.engine import Engine, Sample
from benchmarks.cpu.workers.tasks import Setup


def engine(name: str, *speeds: float) -> Engine:
    samples = [Sample(speed, None, Busyness(1.0, 0.0, 0.0)) for speed in speeds]
    return Engine(name, Path(), "", Setup("", 2), samples={"serve32": samples})


def test_who_is_far_behind_the_fastest_runs_once() -> None:
    engines = [engine("ours", 400.0), engine("near", 240.0, 10.0), engine("slow", 239.0)]
    assert [one.name for one in near_the_best(engines, "serve32")] == ["ours", "near"]


def test_who_was_slow_in_one_task_sits_out_a_long_one() -> None:
    engines = [engine("ours", 390.0, 400.0, 4000.0), engine("near", 99.0, 101.0, 100.0), engine("slow", 99.0)]
    engines.append(Engine("has run nothing yet", Path(), "", Setup("", 2)))
    assert [one.name for one in engines if sits_out(one, engines, 0.25)] == ["slow"]
    assert not any(sits_out(one, engines, 0.0) for one in engines)
