from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from pagoda.bench.arrivals import Pace
from pagoda.bench.serve import Step
from pagoda.cli.bench import progress as progress_module
from pagoda.cli.bench.progress import BenchProgress, RunsProgress, passing
from tests.bench.runs import outcome, run_of

STEP = Step(Pace(concurrency=2))


class Terminal:
    """Looks like a terminal and keeps what is written to it."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None: ...

    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_how_it_goes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    now = 1000.0
    monkeypatch.setattr(progress_module, "time", SimpleNamespace(perf_counter=lambda: now))
    run = run_of(
        [outcome(now - 2, [now - 1.5, now - 1]), outcome(now, [], ended=now, error="timeout")], started=now - 2
    )
    with BenchProgress(enabled=True) as progress:
        progress.show(STEP, run)
        progress.say("a result")
    for words in ("2 at a time", "2 answered", "1 tokens/s", "first token 500 ms", "1 failed"):
        assert words in terminal.text
    assert capsys.readouterr().out == "a result\n", "results go to stdout alone"


def test_nothing_is_shown_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    with BenchProgress(enabled=True) as progress:
        progress.show(STEP, run_of([]))
        progress.say("a result")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("a result\n", "")


def test_a_terminal_sees_runs_go_by(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with passing("loading a model", enabled=True):
        pass
    with RunsProgress(5, enabled=True) as progress:
        progress.show(3)
    assert "loading a model" in terminal.text and "3/5" in terminal.text


@pytest.mark.parametrize("is_terminal", [True, False])
def test_no_runs_are_shown_where_nobody_looks(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    with passing("loading a model", enabled=not is_terminal), RunsProgress(5, enabled=not is_terminal) as progress:
        progress.show(3)
    assert capsys.readouterr() == ("", "")
