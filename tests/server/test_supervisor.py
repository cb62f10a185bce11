"""The supervisor: what it does is in `test_faults`; here is what it does without."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.server.running import RunningServer

HEAVY = ("numpy", "tokenizers", "uvicorn", "asyncio", "pagoda.text", "pagoda.weights")


def test_it_is_imported_without_anything_that_computes():
    code = f"import sys, pagoda.server.supervisor; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_running_one_has_left_behind_what_its_start_needed(server: RunningServer):
    """It has looked up the model, which takes NumPy, and is the process that was started all the same."""
    mapped = Path(f"/proc/{server.pid}/maps").read_text()
    assert "msgspec" in mapped and "numpy" not in mapped
    assert b"pagoda.server.supervisor" in Path(f"/proc/{server.pid}/cmdline").read_bytes()
