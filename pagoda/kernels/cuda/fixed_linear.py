"""y = x W^T in which a row has the same bits whatever rows come along: the product of the deterministic mode.

W stands on the side of the tensor cores that takes 64 lines at a time, x on the side that takes any number, so few rows
and many go through the same instruction, over the same columns in the same order. A W of too few rows for all
multiprocessors is cut into two stretches of columns. Whether it is follows from the shape of W alone; each stretch is
summed from zero and the sums are added, be it by one program or by the one that finishes last.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from pagoda.kernels.cuda.small_linear import NUM_PROCESSORS, LinearWorkspace
from pagoda.kernels.cuda.tiles import INTERPRETED

# Columns multiplied at a time, by the bytes of a number. They decide the bits of float8, whose sums are taken over to
# float32 after so many.
COLUMNS = {1: 128, 2: 64, 4: 32}
# The fewest rows of W that a program takes. A weight is cut where such programs would not occupy every processor.
FEWEST_OUTPUTS = 64
MOST_STRETCHES = 2
SHORTEST_STRETCH = 1024
# Up to so many rows each stretch has a program of its own.
MOST_ROWS_APART = 256
ROW_BLOCKS_TOGETHER = 8
LARGEST_BLOCK = 256


@dataclass(frozen=True)
class FixedTile:
    """Rows of x and of W that a program multiplies, and how it is run. None of it changes a bit of the result."""

    rows: int
    outputs: int
    num_warps: int
    num_stages: int


def fixed_tile(num_rows: int, bytes_per_number: int) -> FixedTile:
    if num_rows <= 16:
        return FixedTile(16, 64, 4, 6)
    if num_rows <= 64 or bytes_per_number == 4:
        return FixedTile(triton.next_power_of_2(min(num_rows, 64)), 64, 4, 4)
    if num_rows <= 128:
        return FixedTile(128, 64, 4, 4)
    # The second sum that float8 needs leaves no registers for the largest tile.
    if num_rows <= MOST_ROWS_APART or bytes_per_number == 1:
        return FixedTile(128, 128, 8, 3)
    return FixedTile(256, 128, 8, 4)


def stretches(num_out: int, num_in: int, bytes_per_number: int) -> tuple[int, int]:
    """How many stretches of columns a weight is cut into, and how long they are; the last may be shorter."""
    fills_all = triton.cdiv(num_out, FEWEST_OUTPUTS) >= NUM_PROCESSORS
    count = 1 if fills_all else max(1, min(MOST_STRETCHES, num_in // SHORTEST_STRETCH))
    columns = COLUMNS[bytes_per_number]
    length = triton.cdiv(triton.cdiv(num_in, columns), count) * columns
    return triton.cdiv(num_in, length), length


def fixed_workspace(weights: Iterable[torch.Tensor], device: torch.device | str) -> LinearWorkspace:
    """Room for the stretches of any of the weights, and a count for every tile of the largest."""
    most_numbers = NUM_PROCESSORS * LARGEST_BLOCK * LARGEST_BLOCK
    most_tiles = 1
    for weight in weights:
        num_out, num_in = weight.shape
        count, _ = stretches(num_out, num_in, weight.element_size())
        if count > 1:
            padded = (num_out + LARGEST_BLOCK) * (MOST_ROWS_APART + LARGEST_BLOCK)
            most_numbers = max(most_numbers, count * padded)
            most_tiles = max(most_tiles, triton.cdiv(padded, 16 * FEWEST_OUTPUTS))
    return LinearWorkspace(
        torch.empty(most_numbers, dtype=torch.float32, device=device),
        torch.zeros(most_tiles, dtype=torch.int32, device=device),
    )


def fixed_linear(
    out: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    workspace: LinearWorkspace,
    x_scales: torch.Tensor | None = None,
    weight_scales: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    tile: FixedTile | None = None,
    apart: bool | None = None,
) -> None:
    """out [M, N] = x [M, I] times weight [N, I], sums in float32, rounded once.

    `x_scales` [M] and `weight_scales` [N] multiply what is stored in float8; `bias` [N] is added. `tile` and `apart` (a
    program for each stretch; at most MOST_ROWS_APART rows) are chosen by the number of rows unless given.
    """
    (num_rows, num_in), num_out = x.shape, len(weight)
    assert x.stride(1) == 1 and weight.stride(1) == 1 and out.stride(1) == 1
    num_stretches, stretch_len = stretches(num_out, num_in, weight.element_size())
    tile = tile or fixed_tile(num_rows, weight.element_size())
    if apart is None:
        apart = num_rows <= MOST_ROWS_APART
    apart = apart and num_stretches > 1
    columns = COLUMNS[weight.element_size()]
    by_tiles = _can_be_tiled(x) and _can_be_tiled(weight)
    num_programs = triton.cdiv(num_rows, tile.rows) * triton.cdiv(num_out, tile.outputs)
    if num_stretches > 1 and not apart:  # each has a place to put its sum by, in the second cache
        num_programs = min(num_programs, NUM_PROCESSORS)
    _fixed_linear[(num_programs, num_stretches if apart else 1)](
        out,
        _by_tiles(x, tile.rows, columns) if by_tiles else x,
        _by_tiles(weight, tile.outputs, columns) if by_tiles else weight,
        x_scales,
        weight_scales,
        bias,
        workspace.partial,
        workspace.num_done,
        num_rows,
        num_out,
        num_in,
        stretch_len,
        out.stride(0),
        x.stride(0),
        weight.stride(0),
        STRETCHES=num_stretches,
        APART=apart,
        BY_TILES=by_tiles,
        ROWS=tile.rows,
        OUTPUTS=tile.outputs,
        COLUMNS=columns,
        TOGETHER=ROW_BLOCKS_TOGETHER,
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
        enable_fp_fusion=False,  # a multiplication and a sum might be joined in one form and not in the other
    )


def _can_be_tiled(matrix: torch.Tensor) -> bool:
    """Whether the copy engine can fetch it: lines of whole 16 bytes. Single precision is not for the tensor cores."""
    size = matrix.element_size()
    return size < 4 and matrix.stride(0) * size % 16 == 0 and matrix.data_ptr() % 16 == 0


def _by_tiles(matrix: torch.Tensor, rows: int, columns: int) -> TensorDescriptor:
    return TensorDescriptor(matrix, list(matrix.shape), [matrix.stride(0), 1], [rows, columns])


@triton.jit
def _tile(
    numbers, first_row, num_rows, first_column, num_columns, row_stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    BY_TILES: tl.constexpr,
):  # fmt: skip
    """[ROWS, COLUMNS] of a matrix, zeros beyond its edges."""
    if BY_TILES:
        tile = numbers.load([first_row, first_column])
    else:
        rows, columns = first_row + tl.arange(0, ROWS), first_column + tl.arange(0, COLUMNS)
        is_number = (rows < num_rows)[:, None] & (columns < num_columns)[None, :]
        places = numbers + rows.to(tl.int64)[:, None] * row_stride + columns[None, :]
        tile = tl.load(places, mask=is_number, other=0.0)
    return tile


@triton.jit
def _multiply(weights, numbers, total):
    if INTERPRETED:  # by NumPy, whose float32 sums depend on the shapes; of these nothing is left in float32
        wide, others = weights.to(tl.float32).to(tl.float64), numbers.to(tl.float32).to(tl.float64)
        total += tl.dot(wide, tl.trans(others)).to(tl.float32)
    elif numbers.dtype.is_fp8():
        # The tensor cores add up float8 products in fewer bits than float32; each block starts anew.
        total += tl.dot(weights, tl.trans(numbers))
    else:
        total = tl.dot(weights, tl.trans(numbers), total, input_precision="ieee")
    return total


@triton.jit
def _sum_of_stretch(
    x, weight, stretch, stretch_len, first_row, num_rows, first_output, num_out, num_in, x_row, weight_row,
    ROWS: tl.constexpr, OUTPUTS: tl.constexpr, COLUMNS: tl.constexpr, BY_TILES: tl.constexpr,
):  # fmt: skip
    total = tl.zeros([OUTPUTS, ROWS], tl.float32)
    begin = stretch * stretch_len
    for column in range(begin, tl.minimum(begin + stretch_len, num_in), COLUMNS):
        weights = _tile(weight, first_output, num_out, column, num_in, weight_row, OUTPUTS, COLUMNS, BY_TILES)
        numbers = _tile(x, first_row, num_rows, column, num_in, x_row, ROWS, COLUMNS, BY_TILES)
        total = _multiply(weights, numbers, total)
    return total


@triton.jit
def _find(tile, num_rows, num_out, ROWS: tl.constexpr, OUTPUTS: tl.constexpr, TOGETHER: tl.constexpr):
    """The first row and the first output of a tile.

    Some blocks of rows take one block of outputs after the other, so that what they read stays in the second cache.
    """
    num_row_blocks, num_out_blocks = tl.cdiv(num_rows, ROWS), tl.cdiv(num_out, OUTPUTS)
    first_block = tile // (TOGETHER * num_out_blocks) * TOGETHER
    num_together = tl.minimum(num_row_blocks - first_block, TOGETHER)
    number = tile - first_block * num_out_blocks
    return (first_block + number % num_together) * ROWS, number // num_together * OUTPUTS


@triton.jit
def _store(
    total, out, x_scales, weight_scales, bias, first_row, num_rows, first_output, num_out, out_row, ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
):  # fmt: skip
    rows, outputs = first_row + tl.arange(0, ROWS), first_output + tl.arange(0, OUTPUTS)
    is_row, is_output = rows < num_rows, outputs < num_out
    if x_scales is not None:
        total *= tl.load(x_scales + rows, mask=is_row, other=0.0)[None, :]
    if weight_scales is not None:
        total *= tl.load(weight_scales + outputs, mask=is_output, other=0.0)[:, None]
    if bias is not None:
        total += tl.load(bias + outputs, mask=is_output, other=0.0).to(tl.float32)[:, None]
    targets = out + rows.to(tl.int64)[:, None] * out_row + outputs[None, :]
    tl.store(targets, tl.trans(total.to(out.dtype.element_ty)), mask=is_row[:, None] & is_output[None, :])


@triton.jit(do_not_specialize=["num_rows"])
def _fixed_linear(
    out,
    x,
    weight,
    x_scales,
    weight_scales,
    bias,
    partial,
    num_done,
    num_rows,
    num_out,
    num_in,
    stretch_len,
    out_row,
    x_row,
    weight_row,
    STRETCHES: tl.constexpr,
    APART: tl.constexpr,
    BY_TILES: tl.constexpr,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    COLUMNS: tl.constexpr,
    TOGETHER: tl.constexpr,
):
    program, num_programs = tl.program_id(0), tl.num_programs(0)
    cells = tl.arange(0, OUTPUTS)[:, None] * ROWS + tl.arange(0, ROWS)[None, :]
    slots = partial + program.to(tl.int64) * (OUTPUTS * ROWS) + cells
    if APART:
        first_row, first_output = _find(program, num_rows, num_out, ROWS, OUTPUTS, TOGETHER)
        own = tl.program_id(1)
        total = _sum_of_stretch(
            x, weight, own, stretch_len, first_row, num_rows, first_output, num_out, num_in, x_row, weight_row,
            ROWS, OUTPUTS, COLUMNS, BY_TILES
        )  # fmt: skip
        stretch_stride = num_programs.to(tl.int64) * (OUTPUTS * ROWS)
        tl.store(slots + own * stretch_stride, total)
        # All threads have stored before one of them says so; acq_rel makes the others' stretches visible to the last.
        tl.debug_barrier()
        before = tl.atomic_add(num_done + program, 1, sem="acq_rel")
        if before == STRETCHES - 1:
            tl.store(num_done + program, 0)
            total = tl.load(slots, cache_modifier=".cg")
            for stretch in range(1, STRETCHES):
                total += tl.load(slots + stretch * stretch_stride, cache_modifier=".cg")
            _store(
                total, out, x_scales, weight_scales, bias, first_row, num_rows, first_output, num_out, out_row, ROWS,
                OUTPUTS
            )  # fmt: skip
    else:
        num_tiles = tl.cdiv(num_rows, ROWS) * tl.cdiv(num_out, OUTPUTS)
        for tile in range(program, num_tiles, num_programs):
            first_row, first_output = _find(tile, num_rows, num_out, ROWS, OUTPUTS, TOGETHER)
            for stretch in range(STRETCHES):
                total = _sum_of_stretch(
                    x, weight, stretch, stretch_len, first_row, num_rows, first_output, num_out, num_in, x_row,
                    weight_row, ROWS, OUTPUTS, COLUMNS, BY_TILES
                )  # fmt: skip
                # There are no registers for two sums of the largest tile: one is put by while the next is made.
                if stretch > 0:
                    total += tl.load(slots, cache_modifier=".cg")
                if stretch < STRETCHES - 1:
                    tl.store(slots, total)
                    tl.debug_barrier()
                else:
                    _store(
                        total, out, x_scales, weight_scales, bias, first_row, num_rows, first_output, num_out, out_row,
                        ROWS, OUTPUTS
                    )  # fmt: skip
