"""The experiments of this folder, small (slow) and whole (soak). What depends on the machine's speed counts only whole,
and there only on a machine that does nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faults import f1_disconnects, f2_kill, f3_hang, f4_full_cache, f5_overload, f6_stop, f8_schema
from tests.faults.goals import Goals

Experiment = Callable[..., Awaitable[Goals]]
SMALL: list[tuple[Experiment, dict[str, Any]]] = [
    (f1_disconnects.experiment, {"disconnects": 60}),
    (f2_kill.experiment, {"kills": 1, "in_flight": 8}),
    (f3_hang.experiment, {"in_flight": 4}),
    (f4_full_cache.experiment, {"requests": 16}),
    (f5_overload.experiment, {"times": 10, "seconds": 4}),
    (f6_stop.experiment, {"in_flight": 8}),
    (f8_schema.experiment, {"examples": 10}),
]
WHOLE: list[tuple[Experiment, dict[str, Any]]] = [
    (f1_disconnects.experiment, {"disconnects": 2000}),
    (f2_kill.experiment, {"kills": 5, "in_flight": 64}),
    (f3_hang.experiment, {"in_flight": 64}),
    (f4_full_cache.experiment, {"requests": 32}),
    (f5_overload.experiment, {"times": 10, "seconds": 30}),
    (f6_stop.experiment, {"in_flight": 32}),
    (f8_schema.experiment, {"examples": 500}),
]


def name_of(value: object) -> str:
    return value.__module__.rpartition(".")[2] if callable(value) else ""


def run(experiment: Experiment, model: Path, settings: dict[str, Any]) -> Goals:
    goals = asyncio.run(experiment(model=str(model), **settings))  # type: ignore[arg-type]
    print(goals.table())
    return goals


@pytest.mark.slow
@pytest.mark.parametrize(("experiment", "settings"), SMALL, ids=name_of)
def test_small(smollm2_path: Path, experiment: Experiment, settings: dict[str, Any]):
    if experiment is f8_schema.experiment:
        pytest.importorskip("schemathesis", reason="schemathesis is not installed")
    assert not run(experiment, smollm2_path, settings).missed(with_timed=False)


@pytest.mark.soak
@pytest.mark.parametrize(("experiment", "settings"), WHOLE, ids=name_of)
def test_whole(smollm2_path: Path, experiment: Experiment, settings: dict[str, Any]):
    assert not run(experiment, smollm2_path, settings).missed()


def test_every_experiment_is_run_small_and_whole():
    folder = Path(__file__).parent
    modules = {path.stem for path in folder.glob("f[0-9]*.py") if not (folder / f"test_{path.name}").exists()}
    assert modules == {name_of(experiment) for experiment, _ in SMALL} == {name_of(one) for one, _ in WHOLE}


def test_a_missed_goal_is_told_from_a_met_one():
    goals = Goals("name")
    goals.at_most("seconds", 2.0, 1.0, "s", is_timed=True)
    goals.at_least("answers", 3, 3)
    goals.exactly("lost", 1, 0)
    goals.note("just so", 5)
    assert [line.what for line in goals.missed()] == ["seconds", "lost"]
    assert [line.what for line in goals.missed(with_timed=False)] == ["lost"]
    assert goals.table().count("MISSED") == 2 and goals.table().count(" met") == 1
