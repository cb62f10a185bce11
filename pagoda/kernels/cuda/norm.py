"""Root-mean-square norm, alone or with the sum before it: one row a program, float32 inside, rounded once."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from pagoda.kernels.cuda.launch import block_of, warps_for
from pagoda.kernels.cuda.overlap import EARLY_LAUNCH, LAUNCHES_EARLY, launch_dependents, wait_for_earlier
from pagoda.kernels.cuda.quick_launch import quick


@quick
@triton.jit
def _norm_kernel(
    out,
    out_scale,
    total,
    x,
    y,
    weight,
    width,
    x_stride,
    epsilon,
    offset,
    ADDS: tl.constexpr,
    QUANTIZES: tl.constexpr,
    LARGEST: tl.constexpr,
    EARLY: tl.constexpr,
    BLOCK: tl.constexpr,
):
    launch_dependents(EARLY)
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    factors = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32) + offset
    wait_for_earlier(EARLY)
    values = tl.load(x + row * x_stride + columns, mask=inside, other=0.0)
    if ADDS:
        values = (values.to(tl.float32) + tl.load(y + row * width + columns, mask=inside, other=0.0).to(tl.float32)).to(
            total.dtype.element_ty
        )
        tl.store(total + row * width + columns, values, mask=inside)
    wide = values.to(tl.float32)
    inverse = tl.rsqrt(tl.sum(wide * wide, axis=0) / width + epsilon)
    normed = wide * inverse * factors
    if QUANTIZES:
        scale = tl.maximum(tl.max(tl.abs(normed), axis=0) / LARGEST, 1e-12)
        tl.store(out_scale + row, scale)
        normed = normed / scale
    tl.store(out + row * width + columns, normed.to(out.dtype.element_ty), mask=inside)


def rms_norm(
    out: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    epsilon: float,
    offset: float = 0.0,
    scales: torch.Tensor | None = None,
) -> None:
    """[T, D] -> out; with `scales` [T], out is fp8 and row t counts scales[t] times."""
    _launch(out, scales, None, x, None, weight, epsilon, offset)


def add_rms_norm(
    out: torch.Tensor,
    total: torch.Tensor,
    x: torch.Tensor,
    y: torch.Tensor,
    weight: torch.Tensor,
    epsilon: float,
    offset: float = 0.0,
    scales: torch.Tensor | None = None,
) -> None:
    """total = x + y, and its norm into `out`. `total` may be `x` or `y`."""
    _launch(out, scales, total, x, y, weight, epsilon, offset)


def _launch(
    out: torch.Tensor,
    scales: torch.Tensor | None,
    total: torch.Tensor | None,
    x: torch.Tensor,
    y: torch.Tensor | None,
    weight: torch.Tensor,
    epsilon: float,
    offset: float,
) -> None:
    width = weight.shape[-1]
    block = block_of(width)
    launcher: Any = _norm_kernel[(x.shape[0],)]
    launcher(
        out,
        out if scales is None else scales,
        out if total is None else total,
        x,
        x if y is None else y,
        weight,
        width,
        x.stride(0),
        epsilon,
        offset,
        ADDS=y is not None,
        QUANTIZES=scales is not None,
        LARGEST=448.0,
        EARLY=LAUNCHES_EARLY,
        BLOCK=block,
        num_warps=warps_for(block),
        **EARLY_LAUNCH,
    )
