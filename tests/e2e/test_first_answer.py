"""What a newcomer sees first: `make run` asks for the capital of France, then goes on with what is piped in."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

QUESTION = "What is the capital of France?"


@pytest.mark.slow
def test_the_first_answer_names_paris_and_piped_lines_are_answered(
    smollm2_path: Path, run_pagoda: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    words = ("run", str(smollm2_path), "--temperature", "0", "--first", QUESTION)
    alone = run_pagoda(*words)
    assert alone.returncode == 0, alone.stderr
    assert "Paris" in alone.stdout

    followed = run_pagoda(*words, lines="What is the capital of Italy?\n")
    assert followed.returncode == 0, followed.stderr
    assert "Paris" in followed.stdout
    assert "Rome" in followed.stdout
