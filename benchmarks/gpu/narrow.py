"""Weights of four and eight bits: how long a product of one row takes by how it is cut, beside reading alone.

    python -m benchmarks.gpu.narrow [--bits 4,8]

The matrices are those of Llama 3.1 8B, each of them many times over, so that the second cache holds none.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Iterator

import torch

from benchmarks.gpu.kernels import READ_BYTES_PER_SECOND, num_sets, time_launches
from benchmarks.report import print_table
from pagoda.kernels.cuda.linear import workspace_for
from pagoda.kernels.cuda.narrow_linear import NarrowMatrix, empty_narrow, narrow_row_plan
from pagoda.kernels.cuda.row_linear import RowPlan

# Outputs, inputs, whether it is gated, whether its inputs are normed.
MATRICES = {
    "gate and up": (28672, 4096, True, True),
    "down": (4096, 14336, False, False),
    "heads": (6144, 4096, False, True),
    "mixed heads": (4096, 4096, False, False),
}
PLANS = [
    (1, 512, 1),
    (1, 512, 2),
    (2, 128, 1),
    (2, 256, 1),
    (2, 256, 2),
    (2, 512, 2),
    (4, 256, 1),
    (4, 512, 2),
    (4, 512, 4),
]


def measure(name: str, bits: int) -> Iterator[list[str]]:
    device = torch.device("cuda")
    num_out, num_in, gated, normed = MATRICES[name]
    num_bytes = num_out * num_in * bits // 8
    matrices = []
    for _ in range(max(2, num_sets(num_bytes))):
        words, scales = empty_narrow(num_out, num_in, bits, device)
        words.random_(-(2**31), 2**31 - 1)
        scales.normal_()
        matrices.append(NarrowMatrix(words, scales, bits=bits, num_in=num_in))
    workspace = workspace_for(matrices, device, torch.bfloat16)
    x = torch.randn((1, num_in), device=device, dtype=torch.bfloat16)
    out = torch.empty((1, num_out // 2 if gated else num_out), device=device, dtype=torch.bfloat16)
    norm = torch.ones(num_in, device=device) if normed else None
    chosen = narrow_row_plan(num_out // 2 if gated else num_out, matrices[0].numbers.shape[1], bits, gated)
    for plan in (RowPlan(*one) for one in PLANS):
        others = {"norm": norm, "epsilon": 1e-5, "gated": gated, "plan": plan}
        seconds = time_launches([functools.partial(one.multiply_row, out, x, workspace, **others) for one in matrices])
        reading = num_bytes / READ_BYTES_PER_SECOND
        cut = f"{plan.block_out} x {plan.block_in} words, {plan.num_warps} warps"
        mark = "chosen" if plan == chosen else ""
        yield [str(bits), name, cut, f"{1e6 * seconds:.1f}", f"{1e6 * reading:.1f}", f"{reading / seconds:.0%}", mark]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bits", default="4,8")
    torch.manual_seed(7)
    lines = [
        line for bits in parser.parse_args().bits.split(",") for name in MATRICES for line in measure(name, int(bits))
    ]
    print_table("microseconds a product", ["bits", "matrix", "cut", "took", "reading", "share", ""], lines)


if __name__ == "__main__":
    main()
