"""Kernels of the deterministic mode built for Hopper: which instructions of the tensor cores they came to.

A process of its own, because elsewhere in the tests kernels are interpreted: `python -m tests.kernels.cuda.compiled`
prints a line of JSON for each form of a kernel.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from pagoda.kernels.cuda.fixed_attention import fixed_attention, split_workspace
from pagoda.kernels.cuda.fixed_linear import fixed_linear, fixed_workspace
from tests.kernels.cuda.hopper import kernels_of

CPU = torch.device("cpu")
ROW_COUNTS = (1, 17, 64, 128, 256, 8192)  # a tile for each
TYPES = {"fp8e4nv": torch.float8_e4m3fn, "bf16": torch.bfloat16}
NUM_IN = 4096
MANY_OUT, FEW_OUT = 16384, 4096  # few are cut into two stretches
NUM_HEADS, NUM_KV_HEADS, PAGE_SIZE, NUM_ROWS = 8, 2, 16, 4


def form_of(name: str, launch: Callable[[], Any]) -> dict[str, Any]:
    (kernel,) = kernels_of(launch)
    code = kernel.asm["ptx"]
    return {
        "name": name,
        "shared": kernel.metadata.shared,
        "wide": sorted(set(re.findall(r"wgmma\.mma_async\.\S*?\.(m\d+n\d+k\d+)", code))),
        "narrow": len(re.findall(r"\bmma\.sync", code)),
        "fused": len(re.findall(r"\bfma\.", code)),
    }


def products() -> Iterator[dict[str, Any]]:
    for kind, dtype in TYPES.items():
        for num_out, apart in ((MANY_OUT, False), (FEW_OUT, False), (FEW_OUT, True)):
            weight = torch.empty((num_out, NUM_IN), dtype=dtype)
            bias = torch.empty(num_out, dtype=torch.bfloat16)
            workspace = fixed_workspace([weight], CPU)
            for num_rows in ROW_COUNTS:
                out = torch.empty((num_rows, num_out), dtype=torch.bfloat16)
                x = torch.empty((num_rows, NUM_IN), dtype=dtype)
                # With scales and a bias there is a product before a sum: something that could be fused.
                scales = (torch.empty(num_rows), torch.empty(num_out)) if kind == "fp8e4nv" else (None, None)
                launch = partial(fixed_linear, out, x, weight, workspace, *scales, bias, apart=apart)
                yield form_of(f"product {kind}", launch)


def attentions() -> Iterator[dict[str, Any]]:
    numbers = torch.zeros(NUM_ROWS + 1, dtype=torch.int32)
    table = torch.zeros((NUM_ROWS, 64), dtype=torch.int32)
    for width in (64, 128, 256):
        out, q = (torch.empty((NUM_ROWS, NUM_HEADS, width), dtype=torch.bfloat16) for _ in range(2))
        pages = [torch.empty((8, PAGE_SIZE, NUM_KV_HEADS, width), dtype=torch.bfloat16) for _ in range(2)]
        attend = partial(fixed_attention, out, q, *pages, table, numbers, numbers[:NUM_ROWS], 0.1, 0)
        workspace = split_workspace(NUM_ROWS, NUM_HEADS, NUM_KV_HEADS, width, 1024, CPU)
        yield form_of(f"attention {width}", attend)
        yield form_of(f"attention {width}", partial(attend, workspace, 4))


if __name__ == "__main__":
    for form in (*products(), *attentions()):
        print(json.dumps(form), flush=True)
