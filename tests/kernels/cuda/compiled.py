"""Kernels built for Hopper on a machine without a GPU: which instructions of the tensor cores they came to.

A process of its own, because elsewhere in the tests kernels are interpreted: `python -m tests.kernels.cuda.compiled`
prints a line of JSON for each form of a kernel.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from pagoda.kernels.cuda.fixed_attention import KEYS, LINES, SPLIT_LEN, _fixed, how_run
from pagoda.kernels.cuda.fixed_linear import COLUMNS, _fixed_linear, fixed_tile

HOPPER = GPUTarget("cuda", 90, 32)
ROW_COUNTS = (1, 17, 64, 128, 256, 8192)  # a tile for each
NAMES = {1: "fp8e4nv", 2: "bf16"}


def build(name: str, kernel: Any, types: dict[str, str], constants: dict[str, Any], **options: Any) -> dict[str, Any]:
    """`types` of the arguments that are not constant; whole numbers and pointers are taken to be multiples of 16."""
    signature = {one: "constexpr" if one in constants else types.get(one, "i32") for one in kernel.arg_names}
    aligned = [["tt.divisibility", 16]]
    free = {"num_rows", "max_splits", "window"}
    attributes = {
        (index,): aligned
        for index, (one, kind) in enumerate(signature.items())
        if one not in free and (kind.startswith("*") or kind == "i32")
    }
    source = ASTSource(kernel, signature, constants, attributes)
    built = triton.compile(source, target=HOPPER, options=options | {"enable_fp_fusion": False})
    code = built.asm["ptx"]
    return {
        "name": name,
        "shared": built.metadata.shared,
        "wide": sorted(set(re.findall(r"wgmma\.mma_async\.\S*?\.(m\d+n\d+k\d+)", code))),
        "narrow": len(re.findall(r"\bmma\.sync", code)),
        "fused": len(re.findall(r"\bfma\.", code)),
    }


def products() -> Iterator[dict[str, Any]]:
    for width, kind in NAMES.items():
        for num_rows in ROW_COUNTS:
            tile, columns = fixed_tile(num_rows, width), COLUMNS[width]
            types = {
                "out": "*bf16",
                "x": f"tensordesc<{kind}[{tile.rows}, {columns}]>",
                "weight": f"tensordesc<{kind}[{tile.outputs}, {columns}]>",
                "partial": "*fp32",
                "num_done": "*i32",
                "bias": "*bf16",
            }
            constants: dict[str, Any] = dict.fromkeys(("x_scales", "weight_scales"))
            constants |= {"ROWS": tile.rows, "OUTPUTS": tile.outputs, "COLUMNS": columns, "BY_TILES": True}
            for stretches, apart in ((1, False), (2, False), (2, True)):
                constants |= {"STRETCHES": stretches, "APART": apart, "TOGETHER": 8}
                options = {"num_warps": tile.num_warps, "num_stages": tile.num_stages}
                yield build(f"product {kind}", _fixed_linear, types, constants, **options)


def attentions() -> Iterator[dict[str, Any]]:
    pointers = dict.fromkeys(("out", "q", "k_pages", "v_pages"), "*bf16")
    pointers |= dict.fromkeys(("page_table", "row_starts", "context_lens", "num_done"), "*i32")
    workspace = dict.fromkeys(("split_mixed", "split_totals"), "*fp32")
    for width in (64, 128, 256):
        for apart in (False, True):
            constants = {
                "GROUP": 4,
                "GROUP_BLOCK": 4,
                "TOKENS": LINES // 4,
                "WIDTH": width,
                "WIDTH_BLOCK": width,
                "PAGE_SIZE": 16,
                "SPLIT_LEN": SPLIT_LEN,
                "KEYS": KEYS,
                "ROWS_TOGETHER": 256,
                "APART": apart,
            }
            if not apart:
                constants |= dict.fromkeys((*workspace, "num_done"))
            types = {**pointers, **workspace, "scale": "fp32"}
            yield build(f"attention {width}", _fixed, types, constants, **how_run(width, 2))


if __name__ == "__main__":
    for form in (*products(), *attentions()):
        print(json.dumps(form))
