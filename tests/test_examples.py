"""Every example is short, and runs: on a model that looks letters up, and (slow) on a real one."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from tests.fakes.lookup_model import write_lookup_model

EXAMPLES = sorted((Path(__file__).resolve().parents[1] / "examples").glob("*.py"))
NEEDS_REAL_TOKENS = {"why.py"}  # its prompts fit its few pages only where a token is a word


def run_example(example: Path, model: Path, num_tokens: int) -> None:
    runpy.run_path(str(example))["main"](str(model), str(num_tokens))


@pytest.fixture(scope="module")
def lookup_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_lookup_model(tmp_path_factory.mktemp("models") / "lookup.gguf")


def test_there_are_examples_and_each_is_short() -> None:
    assert len(EXAMPLES) >= 6
    assert [example.name for example in EXAMPLES if len(example.read_text().splitlines()) >= 40] == []


@pytest.mark.parametrize("example", [e for e in EXAMPLES if e.name not in NEEDS_REAL_TOKENS], ids=lambda e: e.stem)
def test_the_example_runs(example: Path, lookup_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_example(example, lookup_model, 4)
    assert capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_the_example_runs_on_a_real_model(
    example: Path, smollm2_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_example(example, smollm2_path, 16 if example.name in NEEDS_REAL_TOKENS else 3)
    out = capsys.readouterr().out
    assert "pushed back" in out if example.name == "why.py" else out
