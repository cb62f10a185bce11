"""y = W x for a single row, with all that a decoder does before and after: the norm of x, a gate, the residual.

The time is that of reading W. Each program takes some rows of W; it asks for the first of them before it waits for the
kernel that makes x, so that the memory never rests between two products.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from pagoda.kernels.cuda.activation import activated
from pagoda.kernels.cuda.overlap import EARLY_LAUNCH, LAUNCHES_EARLY, launch_dependents, wait_for_earlier

LOAD_BYTES = 16  # that a thread loads in one instruction


@dataclass(frozen=True)
class RowPlan:
    """What a program takes: rows of W, columns at a time."""

    block_out: int
    block_in: int
    num_warps: int


def row_plan(num_out: int, num_in: int, bytes_per_number: int, gated: bool) -> RowPlan:
    """The cut that was best in benchmarks/gpu/rows.py, on an H200."""
    is_narrow = bytes_per_number == 1
    if gated:
        return RowPlan(8, 512, 1) if is_narrow else RowPlan(2, 512, 1)
    if num_out <= num_in:
        return RowPlan(1, 1024, 1)
    if is_narrow:
        return RowPlan(4, 1024, 2)
    return RowPlan(4, 512, 2) if num_in <= 1024 or num_out > 32768 else RowPlan(4, 1024, 4)


@triton.jit
def _load(pointers, is_column, EVEN: tl.constexpr):
    """Where all are columns, a mask would cost an instruction a number."""
    if EVEN:
        return tl.load(pointers)
    return tl.load(pointers, mask=is_column, other=0.0)


@triton.jit
def _and(items, item):
    return items + (item,)  # noqa: RUF005 - Triton knows no other way


@triton.jit
def _tiles(weight, first, num_out, num_in, columns, is_column, ROWS: tl.constexpr, EVEN: tl.constexpr):
    """Some columns of ROWS rows. Rows past the last are read as the last one again; they are never stored."""
    tiles = ()
    for row in tl.static_range(ROWS):
        begin = tl.minimum(first + row, num_out - 1).to(tl.int64) * num_in
        tiles = _and(tiles, _load(weight + begin + columns, is_column, EVEN))
    return tiles


@triton.jit
def _added(tiles, numbers, totals, FIRST: tl.constexpr, ROWS: tl.constexpr):
    added = ()
    for row in tl.static_range(ROWS):
        sums = totals[FIRST + row] + tl.sum(tiles[row].to(tl.float32) * numbers, 1)
        added = _and(added, sums)
    return added


@triton.jit
def _take(
    tiles, ups, x, norm, is_column, offset, totals, squares,
    NORMS: tl.constexpr, IS_OFFSET: tl.constexpr, EVEN: tl.constexpr, ROWS: tl.constexpr, UPS: tl.constexpr,
):  # fmt: skip
    """Add what some columns of the rows give; what a thread loads at once it also adds up at once."""
    numbers = _load(x, is_column, EVEN).to(tl.float32)
    if NORMS:
        squares += tl.sum(numbers * numbers, 1)
        weights = _load(norm, is_column, EVEN)
        numbers *= weights + offset if IS_OFFSET else weights
    return _added(tiles, numbers, totals, 0, ROWS) + _added(ups, numbers, totals, ROWS, UPS), squares


@triton.jit
def _row_linear_kernel(
    out,
    x,
    norm,
    weight,
    scales,
    bias,
    residual,
    num_out,
    num_in,
    epsilon,
    offset,
    NORMS: tl.constexpr,
    IS_OFFSET: tl.constexpr,
    GATED: tl.constexpr,
    EVEN: tl.constexpr,
    EARLY: tl.constexpr,
    BLOCK_OUT: tl.constexpr,
    BLOCK_IN: tl.constexpr,
    VECTOR: tl.constexpr,
):
    launch_dependents(EARLY)
    UPS: tl.constexpr = BLOCK_OUT if GATED else 0
    first = tl.program_id(0) * BLOCK_OUT
    # Columns as [pieces, VECTOR]: a piece is what one thread loads in one instruction.
    columns = tl.arange(0, BLOCK_IN // VECTOR)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
    is_column = columns < num_in
    ups_weight = weight + num_out.to(tl.int64) * num_in
    # The first tiles do not depend on x.
    tiles = _tiles(weight, first, num_out, num_in, columns, is_column, BLOCK_OUT, EVEN)
    ups = _tiles(ups_weight, first, num_out, num_in, columns, is_column, UPS, EVEN)
    wait_for_earlier(EARLY)

    totals = ()
    for _ in tl.static_range(BLOCK_OUT + UPS):
        totals = _and(totals, tl.zeros([BLOCK_IN // VECTOR], tl.float32))
    squares = tl.zeros([BLOCK_IN // VECTOR], tl.float32)
    norms = norm + columns if NORMS else x
    totals, squares = _take(
        tiles, ups, x + columns, norms, is_column, offset, totals, squares, NORMS, IS_OFFSET, EVEN, BLOCK_OUT, UPS
    )
    for start in range(BLOCK_IN, num_in, BLOCK_IN):
        own_columns = start + columns
        is_column = own_columns < num_in
        tiles = _tiles(weight, first, num_out, num_in, own_columns, is_column, BLOCK_OUT, EVEN)
        ups = _tiles(ups_weight, first, num_out, num_in, own_columns, is_column, UPS, EVEN)
        norms = norm + own_columns if NORMS else x
        totals, squares = _take(
            tiles, ups, x + own_columns, norms, is_column, offset, totals, squares,
            NORMS, IS_OFFSET, EVEN, BLOCK_OUT, UPS
        )  # fmt: skip
    inverse = 1.0
    if NORMS:
        inverse = tl.rsqrt(tl.sum(squares, 0) / num_in + epsilon)
    for row in tl.static_range(BLOCK_OUT):
        output = first + row
        is_output = output < num_out
        result = tl.sum(totals[row], 0) * inverse
        if scales is not None:
            result *= tl.load(scales + output, mask=is_output, other=0.0)
        if GATED:
            up = tl.sum(totals[BLOCK_OUT + row], 0) * inverse
            if scales is not None:
                up *= tl.load(scales + num_out + output, mask=is_output, other=0.0)
            result = activated(result, IS_GELU=False) * up
        if bias is not None:
            result += tl.load(bias + output, mask=is_output, other=0.0).to(tl.float32)
        if residual is not None:
            result += tl.load(residual + output, mask=is_output, other=0.0).to(tl.float32)
        tl.store(out + output, result.to(out.dtype.element_ty), mask=is_output)


def row_linear(
    out: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    scales: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    norm: torch.Tensor | None = None,
    epsilon: float = 0.0,
    offset: float = 0.0,
    gated: bool = False,
    plan: RowPlan | None = None,
) -> None:
    """out [1, N] = W [N, I] times x [1, I], which is normed first where `norm` [I] is given.

    `scales` [N] multiply weights that are stored in float8. `gated`: W holds N gates and then N ups, and
    out = silu(gate) * up. `residual` [1, N] is added at the end; it may be `out`.
    """
    assert x.shape[0] == 1 and weight.is_contiguous()
    num_in = x.shape[1]
    num_out = len(weight) // 2 if gated else len(weight)
    size = weight.element_size()
    plan = plan or row_plan(num_out, num_in, size, gated)
    launcher: Any = _row_linear_kernel[(triton.cdiv(num_out, plan.block_out),)]
    launcher(
        out,
        x,
        norm,
        weight,
        scales,
        bias,
        residual,
        num_out,
        num_in,
        epsilon,
        offset,
        NORMS=norm is not None,
        IS_OFFSET=offset != 0.0,
        GATED=gated,
        EVEN=num_in % plan.block_in == 0,
        EARLY=LAUNCHES_EARLY,
        BLOCK_OUT=plan.block_out,
        BLOCK_IN=plan.block_in,
        VECTOR=LOAD_BYTES // size,
        num_warps=plan.num_warps,
        **EARLY_LAUNCH,
    )
