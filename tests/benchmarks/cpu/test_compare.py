"""Who runs a long task again."""

from __future__ import annotations

from pathlib import Path

from benchmarks.cpu.busy import Busyness
from benchmarks.cpu.compare import near_the_best
from benchmarks.cpu.engine import Engine, Sample
from benchmarks.cpu.workers.tasks import Setup


def engine(name: str, *speeds: float) -> Engine:
    samples = [Sample(speed, None, Busyness(1.0, 0.0, 0.0)) for speed in speeds]
    return Engine(name, Path(), "", Setup("", 2), samples={"serve32": samples})


def test_who_is_far_behind_the_fastest_runs_once() -> None:
    engines = [engine("ours", 400.0), engine("near", 240.0, 10.0), engine("slow", 239.0)]
    assert [one.name for one in near_the_best(engines, "serve32")] == ["ours", "near"]
