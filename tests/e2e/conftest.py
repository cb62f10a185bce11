"""Runs the `pagoda` command as a user would: in a process of its own, with a pipe for a terminal."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
RunPagoda = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def run_pagoda() -> RunPagoda:
    """Call it with the words of the command line; ``lines`` are piped in. Nothing is asserted about the outcome."""

    def run(*words: str, lines: str = "", timeout: float = 300) -> subprocess.CompletedProcess[str]:
        start = "import sys; from pagoda.cli.main import main; sys.exit(main())"
        command = [sys.executable, "-c", start, *words]
        return subprocess.run(command, cwd=REPOSITORY, input=lines, capture_output=True, text=True, timeout=timeout)

    return run
