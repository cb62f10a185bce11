"""`pagoda replay`: a whole log, a forged one, one that makes no sense."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pagoda.cli.main import main


def test_replay_reproduces_every_plan(decision_log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(decision_log)]) == 0
    assert capsys.readouterr().out.endswith("decisions replayed: every plan reproduced\n")


def test_replay_tells_the_first_difference(
    decision_log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = msgspec.msgpack.decode(decision_log.read_bytes())
    plans = [entry for entry in record["entries"] if isinstance(entry, dict) and entry.get("type") == "plan"]
    plans[3]["digest"] = b"\0" * len(plans[3]["digest"])
    forged = tmp_path / "forged.log"
    forged.write_bytes(msgspec.msgpack.encode(record))
    assert main(["replay", str(forged)]) == 1
    assert capsys.readouterr().out == (
        f"4 plans replayed; the first difference: the plan of step {plans[3]['step_id']} came out differently\n"
    )


def test_replay_of_a_log_that_contradicts_itself_is_one_line(
    decision_log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = msgspec.msgpack.decode(decision_log.read_bytes())
    record["entries"] = [entry for entry in record["entries"] if entry.get("type") != "plan"]
    forged = tmp_path / "forged.log"
    forged.write_bytes(msgspec.msgpack.encode(record))
    assert main(["replay", str(forged)]) == 1
    out, err = capsys.readouterr()
    assert err == "" and out.startswith("0 plans replayed; the first difference: ") and out.count("\n") == 1
