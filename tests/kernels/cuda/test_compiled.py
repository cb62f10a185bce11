"""What the interpreter cannot show of the deterministic mode: every form of a kernel multiplies by one instruction."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

SHARED_BYTES = 227 << 10  # of a program on Hopper


@pytest.mark.slow
def test_few_rows_and_many_go_through_the_same_instruction(tmp_path: Path):
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "tests.kernels.cuda.compiled"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=900)
    assert not done.returncode, done.stderr[-2000:]
    forms = [json.loads(line) for line in done.stdout.splitlines()]
    by_name = defaultdict(list)
    for form in forms:
        by_name[form["name"]].append(form)
        assert form["shared"] <= SHARED_BYTES
        assert form["wide"] and not form["narrow"], form
    for kind, columns in (("bf16", 16), ("fp8e4nv", 32)):
        assert not any(form["fused"] for form in by_name[f"product {kind}"])
        shapes = {shape for form in by_name[f"product {kind}"] for shape in form["wide"]}
        assert len(shapes) > 3
        assert {re.sub(r"n\d+", "", shape) for shape in shapes} == {f"m64k{columns}"}
    for width in (64, 128, 256):
        sequential, apart = by_name[f"attention {width}"]
        assert sequential["wide"] == apart["wide"]
