"""The gate of an MLP, one row a program, with the rounding to fp8 that the product after it wants."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from pagoda.kernels.cuda.launch import block_of, warps_for
from pagoda.kernels.cuda.overlap import EARLY_LAUNCH, LAUNCHES_EARLY, launch_dependents, wait_for_earlier
from pagoda.kernels.cuda.quick_launch import quick
from pagoda.kernels.cuda.tiles import LOG2_E

MINUS_LOG2_E = tl.constexpr(-LOG2_E)
COLUMNS = 2048  # of a program that need not see its whole row


@triton.jit
def activated(x, IS_GELU: tl.constexpr):
    """SiLU, or GELU in its tanh form, which is x times a sigmoid as well."""
    power = x * MINUS_LOG2_E
    if IS_GELU:
        power *= 2.0 * 0.7978845608028654 * (1.0 + 0.044715 * x * x)  # the square root of 2 / pi
    # A division would take six instructions, an inverse root and its square take two.
    root = tl.rsqrt(1.0 + tl.exp2(power))
    return x * root * root


@quick
@triton.jit
def _gated_kernel(
    out,
    out_scale,
    gate,
    up,
    width,
    stride,
    IS_GELU: tl.constexpr,
    QUANTIZES: tl.constexpr,
    LARGEST: tl.constexpr,
    EARLY: tl.constexpr,
    BLOCK: tl.constexpr,
):
    launch_dependents(EARLY)
    wait_for_earlier(EARLY)
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < width
    x = tl.load(gate + row * stride + columns, mask=inside, other=0.0).to(tl.float32)
    y = tl.load(up + row * stride + columns, mask=inside, other=0.0).to(tl.float32)
    values = activated(x, IS_GELU) * y
    if QUANTIZES:
        scale = tl.maximum(tl.max(tl.abs(values), axis=0) / LARGEST, 1e-12)
        tl.store(out_scale + row, scale)
        values = values / scale
    tl.store(out + row * width + columns, values.to(out.dtype.element_ty), mask=inside)


def gated(
    out: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    is_gelu: bool = False,
    scales: torch.Tensor | None = None,
) -> None:
    """silu(gate) * up, or GELU in its tanh form. `gate` and `up` may be columns of one matrix: same row stride."""
    rows, width = gate.shape
    block = block_of(width) if scales is not None else min(COLUMNS, block_of(width))
    launcher: Any = _gated_kernel[(rows, -(-width // block))]
    launcher(
        out,
        out if scales is None else scales,
        gate,
        up,
        width,
        gate.stride(0),
        IS_GELU=is_gelu,
        QUANTIZES=scales is not None,
        LARGEST=448.0,
        EARLY=LAUNCHES_EARLY,
        BLOCK=block,
        num_warps=warps_for(block) if scales is not None else 4,
        **EARLY_LAUNCH,
    )


@quick
@triton.jit
def _quantize_kernel(out, out_scale, x, width, stride, LARGEST: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    values = tl.load(x + row * stride + columns, mask=inside, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(values), axis=0) / LARGEST, 1e-12)
    tl.store(out_scale + row, scale)
    tl.store(out + row * width + columns, (values / scale).to(out.dtype.element_ty), mask=inside)


def quantize(out: torch.Tensor, scales: torch.Tensor, x: torch.Tensor) -> None:
    """Rows of [T, D] in fp8, each with a scale."""
    rows, width = x.shape
    block = block_of(width)
    launcher: Any = _quantize_kernel[(rows,)]
    launcher(out, scales, x, width, x.stride(0), LARGEST=448.0, BLOCK=block, num_warps=warps_for(block))
