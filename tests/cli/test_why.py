"""`pagoda why` on a log in which requests wait, are cut and are pushed back."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagoda.cli.main import main


def test_all_requests_are_listed_in_one_line_each(decision_log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", str(decision_log)]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["REQUEST", "PROMPT", "CACHED", "WAITED", "CUT", "PUSHED", "BACK", "STATE"]
    assert [line.split()[0] for line in lines] == ["0", "1", "2", "3"]
    assert "50 tokens" in lines[0] and "once" in lines[0] and lines[0].endswith("finished")
    assert " yes " in lines[0]


def test_one_request_is_told_in_words(decision_log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", str(decision_log), "0"]) == 0
    text = capsys.readouterr().out
    for words in ("queued with 50 prompt tokens", "its prompt was cut", "pushed back", "started again", "finished"):
        assert words in text
    assert main(["why", str(decision_log), "3"]) == 0
    assert "all 2 rows were taken" in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["why", "replay"])
def test_what_is_no_log_is_one_line(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_bytes(b"nonsense")
    for name in ("file", "nothing", "."):
        assert main([verb, str(tmp_path / name)]) == 1
        err = capsys.readouterr().err
        assert err.startswith("pagoda: error: ") and err.count("\n") == 1


def test_an_unknown_request_is_one_line(decision_log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", str(decision_log), "77"]) == 1
    assert "says nothing of request '77'; it knows '0', '1'" in capsys.readouterr().err
