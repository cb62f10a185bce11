"""`pagoda list`: the table, the JSON, and a damaged model that hides no other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pagoda.cli.main import main


def test_an_empty_store_says_what_to_do(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    out, err = capsys.readouterr()
    assert out == "" and "try: pagoda pull smollm2" in err
    assert main(["list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_the_table(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["pull", "--quiet", "tiny"])
    capsys.readouterr()
    assert main(["list"]) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header.split() == ["NAME", "SIZE", "PARAMETERS", "QUANTIZATION", "PULLED", "SOURCE"]
    assert row.split()[0] == "tiny" and row.endswith("pypi:tiny-part1==1.0 and 1 more")
    assert row.index("pypi:") == header.index("SOURCE")
    assert main(["list", "--json"]) == 0
    (manifest,) = json.loads(capsys.readouterr().out)
    assert manifest["name"] == "tiny"


def test_a_damaged_model_hides_no_other(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["pull", "--quiet", "tiny"])
    (home / "models" / "broken").mkdir()
    (home / "models" / "broken" / "manifest.json").write_text("{")
    capsys.readouterr()
    assert main(["list"]) == 0
    out, err = capsys.readouterr()
    assert "tiny" in out and "broken" not in out
    assert err.startswith("pagoda: warning: ") and "broken" in err


def test_known_names(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--known"]) == 0
    out = capsys.readouterr().out
    assert "tiny" in out and "test licence" in out
