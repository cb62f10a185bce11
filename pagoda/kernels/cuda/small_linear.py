"""y = x W^T for a few rows of x, where the time is that of reading W.

A program takes some rows of W and a stretch of their columns. Stretches of the same rows are added up in order by the
program that finishes last, so the result does not depend on which that is. One row of x is multiplied in plain
registers; more go through the tensor cores, W on the side that has many rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from pagoda.kernels.cuda.activation import activated
from pagoda.kernels.cuda.cublaslt import SCRATCH_BYTES
from pagoda.kernels.cuda.overlap import CACHE_LINE, wait_and_fetch
from pagoda.kernels.cuda.tiles import INTERPRETED

MOST_ROWS = 16
LARGEST_BLOCK = 128
NUM_PROCESSORS = 132  # of an H200


@dataclass(frozen=True)
class LinearPlan:
    """How W is cut. `num_stretches` of columns need a workspace of as many partial results."""

    block_out: int
    block_in: int
    num_stretches: int
    num_warps: int
    num_stages: int


@dataclass(frozen=True, eq=False)
class LinearWorkspace:
    """Partial results and, for each block of outputs, how many are there; the counts are zeros between launches.

    Where there are no partial results, a product of cuBLASLt keeps what it counts in their place.
    """

    partial: torch.Tensor  # float32
    num_done: torch.Tensor  # int32
    wide: torch.Tensor | None = None  # a matrix of narrow numbers, as long as it is multiplied
    row: torch.Tensor | None = None  # int32: the inputs that such a matrix meets


def linear_workspace(max_out: int, max_stretches: int, device: torch.device | str) -> LinearWorkspace:
    """For weights of up to `max_out` rows (both halves of a gated pair counted) cut into up to so many stretches."""
    padded = max_out + 2 * LARGEST_BLOCK  # each half ends with a block that may be partly filled
    num_partial = max(max_stretches * padded * MOST_ROWS, SCRATCH_BYTES // 4)
    return LinearWorkspace(
        torch.empty(num_partial, dtype=torch.float32, device=device),
        torch.zeros(max_out, dtype=torch.int32, device=device),
    )


def linear_plan(num_rows: int, num_out: int, num_in: int, bytes_per_number: int) -> LinearPlan:
    """The cut that was best in benchmarks/gpu/kernels.py, on an H200."""
    if num_rows > 1:
        num_stretches = max(1, min(num_in // 256, round(NUM_PROCESSORS * 64 / num_out)))
        return LinearPlan(64, 256 // bytes_per_number, num_stretches, 4, 5)
    if bytes_per_number == 1:
        return LinearPlan(2, 1024, 1, 2, 1)
    if num_in > 8192:
        return LinearPlan(8, 1024, 1, 4, 1)
    return LinearPlan(8, 1024, 1, 8, 2) if num_out <= 1024 else LinearPlan(8, 512, 1, 4, 3)


def small_linear(
    out: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    workspace: LinearWorkspace,
    x_scales: torch.Tensor | None = None,
    weight_scales: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    gated: bool = False,
    early: bool = False,
    plan: LinearPlan | None = None,
) -> None:
    """out [M, N] = x [M, I] times weight [N, I], for M up to 16; sums in float32, rounded once.

    `x_scales` [M] and `weight_scales` [N] multiply what is stored in float8. `bias` [N] and `residual` [M, N] are
    added; `out` may be `residual`. `gated`: the weight holds N gates and then N ups, and out = silu(gate) * up.
    `early`: start while the kernel before is still at work, and fetch weights until it is done.
    """
    num_rows, num_in = x.shape
    num_out = len(weight) // 2 if gated else len(weight)
    assert num_rows <= MOST_ROWS, f"{num_rows} rows where {MOST_ROWS} are the most"
    assert x.stride(1) == 1 and weight.stride(1) == 1 and out.stride(1) == 1
    assert not gated or (bias is None and residual is None), "a gated product takes neither bias nor residual"
    plan = plan or linear_plan(num_rows, len(weight), num_in, weight.element_size())
    _small_linear[(triton.cdiv(num_out, plan.block_out), plan.num_stretches)](
        out,
        x,
        weight,
        x_scales,
        weight_scales,
        bias,
        residual,
        workspace.partial,
        workspace.num_done,
        num_rows,
        num_out,
        num_in,
        out.stride(0),
        x.stride(0),
        weight.stride(0),
        0 if residual is None else residual.stride(0),
        GATED=gated,
        ROWS=1 if num_rows == 1 else MOST_ROWS,
        BLOCK_OUT=plan.block_out,
        BLOCK_IN=plan.block_in,
        EVEN=num_in % plan.block_in == 0,
        EARLY=early,
        launch_pdl=early,
        num_warps=plan.num_warps,
        num_stages=plan.num_stages,
    )


@triton.jit
def _multiply(weights, numbers, total, ROWS: tl.constexpr):
    """Add [BLOCK_OUT, BLOCK_IN] by [ROWS, BLOCK_IN] to the total; one row keeps its columns apart until the end."""
    if ROWS == 1:
        total += weights.to(tl.float32) * numbers.to(tl.float32)
    elif INTERPRETED:
        total += tl.dot(weights.to(tl.float32), tl.trans(numbers.to(tl.float32)), input_precision="ieee")
    elif numbers.dtype.is_fp8():
        # The tensor cores add up float8 products in fewer bits than float32; each block starts anew.
        total += tl.dot(weights, tl.trans(numbers), max_num_imprecise_acc=0)
    else:
        total = tl.dot(weights.to(numbers.dtype), tl.trans(numbers), total, input_precision="ieee")
    return total


@triton.jit
def _add_stretches(partial, stretch_stride, num_stretches, offsets, BLOCK_OUT: tl.constexpr, ROWS: tl.constexpr):
    total = tl.zeros([BLOCK_OUT, ROWS], tl.float32)
    for stretch in range(num_stretches):
        total += tl.load(partial + stretch * stretch_stride + offsets, cache_modifier=".cg")
    return total


@triton.jit
def _scaled(total, x_scales, weight_scales, rows, outputs, is_row, is_output):
    if x_scales is not None:
        total *= tl.load(x_scales + rows, mask=is_row, other=0.0)[None, :]
    if weight_scales is not None:
        total *= tl.load(weight_scales + outputs, mask=is_output, other=0.0)[:, None]
    return total


@triton.jit(do_not_specialize=["num_rows"])
def _small_linear(
    out,
    x,
    weight,
    x_scales,
    weight_scales,
    bias,
    residual,
    partial,
    num_done,
    num_rows,
    num_out,
    num_in,
    out_row,
    x_row,
    weight_row,
    residual_row,
    GATED: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_OUT: tl.constexpr,
    BLOCK_IN: tl.constexpr,
    EVEN: tl.constexpr,
    EARLY: tl.constexpr,
):
    block, stretch = tl.program_id(0), tl.program_id(1)
    num_blocks, num_stretches = tl.num_programs(0), tl.num_programs(1)
    outputs = block * BLOCK_OUT + tl.arange(0, BLOCK_OUT)
    rows = tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK_IN)
    is_output, is_row = outputs < num_out, rows < num_rows
    # Rows past the last are read as the last one again, which costs no mask; they are never stored.
    own_rows = tl.minimum(outputs, num_out - 1).to(tl.int64) * weight_row
    weights = weight + own_rows[:, None] + columns[None, :]
    numbers = x + tl.minimum(rows, num_rows - 1)[:, None] * x_row + columns[None, :]
    up_offset = num_out.to(tl.int64) * weight_row

    length = tl.cdiv(tl.cdiv(num_in, BLOCK_IN), num_stretches) * BLOCK_IN
    if EARLY:
        LINE: tl.constexpr = 8 * CACHE_LINE // weight.dtype.element_ty.primitive_bitwidth
        lines = stretch * length + tl.arange(0, BLOCK_IN // LINE) * LINE
        wait_and_fetch(weight + own_rows[:, None] + lines[None, :])
    total = tl.zeros([BLOCK_OUT, BLOCK_IN if ROWS == 1 else ROWS], tl.float32)
    up_total = total
    for start in range(stretch * length, tl.minimum((stretch + 1) * length, num_in), BLOCK_IN):
        if EVEN:
            x_tile = tl.load(numbers + start)
            tile = tl.load(weights + start)
        else:
            is_column = (start + columns < num_in)[None, :]
            x_tile = tl.load(numbers + start, mask=is_column, other=0.0)
            tile = tl.load(weights + start, mask=is_column, other=0.0)
        total = _multiply(tile, x_tile, total, ROWS)
        if GATED:
            if EVEN:
                up_tile = tl.load(weights + up_offset + start)
            else:
                up_tile = tl.load(weights + up_offset + start, mask=is_column, other=0.0)
            up_total = _multiply(up_tile, x_tile, up_total, ROWS)
    if ROWS == 1:
        total = tl.sum(total, 1)[:, None]
        up_total = tl.sum(up_total, 1)[:, None]

    if num_stretches > 1:
        cells = (block * BLOCK_OUT + tl.arange(0, BLOCK_OUT))[:, None] * ROWS + rows[None, :]
        half = num_blocks * BLOCK_OUT * ROWS
        stretch_stride = 2 * half if GATED else half
        tl.store(partial + stretch * stretch_stride + cells, total)
        if GATED:
            tl.store(partial + stretch * stretch_stride + half + cells, up_total)
        tl.debug_barrier()
        before = tl.atomic_add(num_done + block, 1, sem="acq_rel")
        if before != num_stretches - 1:
            return
        tl.store(num_done + block, 0)
        total = _add_stretches(partial, stretch_stride, num_stretches, cells, BLOCK_OUT, ROWS)
        if GATED:
            up_total = _add_stretches(partial + half, stretch_stride, num_stretches, cells, BLOCK_OUT, ROWS)

    is_cell = is_output[:, None] & is_row[None, :]
    total = _scaled(total, x_scales, weight_scales, rows, outputs, is_row, is_output)
    if GATED:
        up_total = _scaled(up_total, x_scales, weight_scales, rows, outputs + num_out, is_row, is_output)
        total = activated(total, IS_GELU=False) * up_total
    if bias is not None:
        total += tl.load(bias + outputs, mask=is_output, other=0.0).to(tl.float32)[:, None]
    if residual is not None:
        added = tl.load(residual + rows[None, :] * residual_row + outputs[:, None], mask=is_cell, other=0.0)
        total += added.to(tl.float32)
    tl.store(out + rows[None, :] * out_row + outputs[:, None], total.to(out.dtype.element_ty), mask=is_cell)
