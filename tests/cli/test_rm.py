"""`pagoda rm`: asks on a terminal, frees everything, and refuses what is not there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pagoda.cli.main import main


@pytest.fixture
def pulled(home: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    main(["pull", "--quiet", "tiny"])
    capsys.readouterr()
    return home / "models" / "tiny"


def on_terminal(monkeypatch: pytest.MonkeyPatch, answer: str | None) -> None:
    def read(prompt: str) -> str:
        assert prompt == "remove tiny? [y/N] "
        if answer is None:
            raise EOFError
        return answer

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", read)


@pytest.mark.parametrize(
    ("answer", "removed"), [("y", True), (" YES ", True), ("", False), ("n", False), (None, False)]
)
def test_a_terminal_is_asked(pulled: Path, answer: str | None, removed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    on_terminal(monkeypatch, answer)
    assert main(["rm", "tiny"]) == 0
    assert pulled.exists() != removed


def test_yes_asks_nothing(pulled: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    on_terminal(monkeypatch, "n")
    assert main(["rm", "--yes", "tiny"]) == 0
    assert capsys.readouterr().out.startswith("tiny is removed, ")
    assert [path for path in pulled.parents[1].rglob("*") if path.is_file()] == []


def test_what_is_not_there(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rm", "tiny"]) == 1
    assert capsys.readouterr().err == "pagoda: error: tiny is not in the store; see: pagoda list\n"
