"""Workers as the comparison starts, stops and questions them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.cpu import engine as engine_module
from benchmarks.cpu.engine import Engine, WorkerFailed
from benchmarks.cpu.workers.tasks import Setup

WORKER = """
import sys
sys.path.insert(0, {tasks!r})
from tasks import Outcome, Setup, serve
setup = Setup.from_command_line()
print("some library talks while it loads")
def run(task):
    print("and while it runs")
    if setup.model == "broken":
        raise RuntimeError("no such model")
    return Outcome(0.5, setup.num_streams * 1.0)
serve(run)
"""


def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str) -> Engine:
    monkeypatch.setattr(engine_module, "RESULTS", tmp_path)
    worker = tmp_path / "worker.py"
    worker.write_text(WORKER.format(tasks=str(engine_module.WORKERS)))
    engine = Engine("fake engine", Path(sys.executable), str(worker), Setup(model, 2))
    engine.start(num_streams=3)
    return engine


def test_a_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = start(tmp_path, monkeypatch, "fine")
    try:
        engine.pause()
        sample, peak = engine.run("prompt512")
    finally:
        engine.stop()
    assert sample.speed == 1024.0
    assert sample.longest_stall == 3.0
    assert peak > 1
    assert (tmp_path / "logs" / "fake-engine.log").read_text() == "and while it runs\n"


def test_what_a_worker_died_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = start(tmp_path, monkeypatch, "broken")
    with pytest.raises(WorkerFailed, match="RuntimeError: no such model"):
        engine.run("decode1")
    engine.stop()
