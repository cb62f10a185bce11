"""What the interpreter cannot show: that kernels can be built for Hopper, what of it they take, and that in the
deterministic mode every form of a kernel multiplies by one instruction."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from pagoda.kernels import cuda

SHARED_BYTES = 227 << 10  # of a program on Hopper
REGISTERS = 64 << 10  # of a multiprocessor
LAUNCH = re.compile(r"(\b_\w+)\[(?:\(|grid\])")
# They hold a tile of sums, or search: some would rather have a few numbers in memory than be fewer at once.
MAY_SPILL = {"_decode", "_shared", "_prefill", "_fixed", "_find_borders", "_narrow_row_kernel"}
MOST_SPILLED = 256  # bytes a thread


def lines_of(module: str, cache: Path) -> list[dict[str, Any]]:
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(cache)}
    command = [sys.executable, "-m", f"tests.kernels.cuda.{module}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=900)
    assert not done.returncode, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_every_kernel_can_be_built_and_fits_the_device(tmp_path: Path):
    kernels = lines_of("all_kernels", tmp_path)
    sources = [path.read_text() for path in Path(cuda.__path__[0]).glob("*.py") if path.stem != "quick_launch"]
    assert {name for source in sources for name in LAUNCH.findall(source)} == {kernel["name"] for kernel in kernels}
    for kernel in kernels:
        assert kernel["shared_bytes"] <= SHARED_BYTES, kernel
        assert kernel["num_registers"] * kernel["num_warps"] * 32 <= REGISTERS, kernel
        assert kernel["stack_bytes"] <= (MOST_SPILLED if kernel["name"] in MAY_SPILL else 0), kernel


@pytest.mark.slow
def test_few_rows_and_many_go_through_the_same_instruction(tmp_path: Path):
    forms = lines_of("compiled", tmp_path)
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
