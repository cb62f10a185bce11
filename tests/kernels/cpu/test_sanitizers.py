"""The kernels' own tests once more, on a build that watches every access to memory and every meeting of threads."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="no compiler")
@pytest.mark.parametrize("kind", ["address", "thread"])
def test_the_kernels_under_a_sanitizer(kind: str):
    # One size of the team, and threads that meet in the same way on every instruction set, to stay within minutes;
    # `make test-sanitized` runs all.
    sets = ["--best-set"] if kind == "thread" else []
    command = ["native/sanitize", kind, "-q", "-x", *sets, "--teams", "2", "--"]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHON": sys.executable}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    assert " passed" in done.stdout
