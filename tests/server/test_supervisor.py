"""The supervisor: what it does is in `test_faults`; here is what it does without."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pagoda.server.supervisor import EXIT_GAVE_UP, MOST_DEATHS
from tests.server.running import RunningServer
from tests.waiting import until

HEAVY = ("numpy", "tokenizers", "uvicorn", "asyncio", "pagoda.text", "pagoda.weights")


def test_it_is_imported_without_anything_that_computes():
    code = f"import sys, pagoda.server.supervisor; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_running_one_has_left_behind_what_its_start_needed(server: RunningServer):
    """It has looked up the model, which takes NumPy, and is the process that was started all the same."""
    mapped = Path(f"/proc/{server.pid}/maps").read_text()
    assert "msgspec" in mapped and "numpy" not in mapped
    assert b"pagoda.server.supervisor" in Path(f"/proc/{server.pid}/cmdline").read_bytes()


def start_lone(engine: str, log: Path) -> subprocess.Popen[str]:
    log.touch()
    command = [sys.executable, "-m", "tests.server.lone_supervisor", engine, str(log)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("engine", ["never connects", "is never ready"])
def test_engines_that_never_answer_are_not_started_for_ever(engine: str, tmp_path: Path):
    log = tmp_path / "log"
    with start_lone(engine, log) as lone:
        _, said = lone.communicate(timeout=60)
    assert lone.returncode == EXIT_GAVE_UP
    assert log.read_text().split("\n")[:-1] == ["engine"] * MOST_DEATHS + ["no engine"]
    assert said.count("did not connect within 0.3 s") == (MOST_DEATHS if engine == "never connects" else 0)
    assert "it is not started again" in said


def test_an_engine_that_was_ready_is_started_as_long_as_it_does_not_die_often(tmp_path: Path):
    log = tmp_path / "log"
    with start_lone("is ready", log) as lone:
        until(lambda: log.read_text().count("engine\n") > MOST_DEATHS + 1)
        assert lone.poll() is None
        lone.send_signal(signal.SIGTERM)
        lone.send_signal(signal.SIGTERM)
        lone.communicate(timeout=60)
    assert "no engine" not in log.read_text().split("drain")[0]


def test_an_engine_that_dies_while_the_server_drains_is_not_waited_for(tmp_path: Path):
    log = tmp_path / "log"
    with start_lone("dies later", log) as lone:
        until(lambda: "engine" in log.read_text())
        lone.send_signal(signal.SIGTERM)
        lone.communicate(timeout=60)
    assert lone.returncode == 0
    assert log.read_text().split("\n")[:-1] == ["engine", "drain", "no engine"]
