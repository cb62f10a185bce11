"""`pagoda plan`: a table, JSON, and one line where nothing fits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pagoda.cli.main import main
from pagoda.engine import memory_plan
from tests.engine.conftest import tiny_folder, tiny_reference  # noqa: F401 - fixtures

SMALL = ("--max-num-seqs", "8", "--max-num-batched-tokens", "64")


def test_the_table_has_every_line_and_what_fits(tiny_folder: Path, capsys: pytest.CaptureFixture[str]):  # noqa: F811
    assert main(["plan", str(tiny_folder), *SMALL]) == 0
    text = capsys.readouterr().out
    for word in ("weights", "pages", "workspace", "logits", "rows", "tokenizer", "interpreter", "HTTP process"):
        assert word in text
    assert "Margin" in text and "int8" in text and "streams of 512" in text
    assert max(len(line) for line in text.splitlines()[2:]) <= 130


def test_json_has_the_same_numbers(tiny_folder: Path, capsys: pytest.CaptureFixture[str]):  # noqa: F811
    assert main(["plan", str(tiny_folder), *SMALL, "--num-pages", "40", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    pages = [line["num_bytes"] for line in found["lines"] if line["name"] == "pages"]
    assert pages == [found["memory"]["num_pages"][0] * found["memory"]["page_bytes"][0]]
    assert found["config"]["max_num_seqs"] == 8


def test_where_nothing_fits_one_line_says_what_to_change(
    tiny_folder: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(memory_plan, "available_bytes", lambda: 1000)
    assert main(["plan", str(tiny_folder), *SMALL]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "gpu_memory_utilization" in error and "smaller model" in error


def test_a_setting_is_checked_as_serve_checks_it(tiny_folder: Path, capsys: pytest.CaptureFixture[str]):  # noqa: F811
    assert main(["plan", str(tiny_folder), "--max-num-seqs", "1000"]) == 1
    assert "max_num_batched_tokens" in capsys.readouterr().err


def test_a_gpu_that_is_not_here_can_be_planned_for(
    tiny_folder: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
):
    pytest.importorskip("torch")
    assert main(["plan", str(tiny_folder), *SMALL, "--device", "cuda", "--gpu-memory", "4"]) == 0
    text = capsys.readouterr().out
    for word in ("on the GPU", "attention", "libraries", "pinned", "streams of 512"):
        assert word in text
    assert main(["plan", str(tiny_folder), *SMALL, "--device", "cuda", "--gpu-memory", "0"]) == 1
    assert "gpu_memory: must be above 0" in capsys.readouterr().err
