"""The rows of a worker on the device: edits come in, a step's inputs go out, drawn tokens go back.

All numbers of the rows lie in one arena of int32, so that whatever a plan changes is one copy and one launch.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from pagoda.kernels.cuda.quick_launch import quick

EDIT_BLOCK = 1024
TOKEN_BLOCK = 256
PAGE_BLOCK = 64


@quick
@triton.jit
def _edit_kernel(arena, edits, values, BLOCK: tl.constexpr):
    edit = edits + tl.program_id(0) * 3
    target, source, count = tl.load(edit), tl.load(edit + 1), tl.load(edit + 2)
    places = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    tl.store(arena + target.to(tl.int64) + places, tl.load(values + source + places, mask=inside), mask=inside)


def apply_edits(arena: torch.Tensor, edits: torch.Tensor, values: torch.Tensor, longest: int) -> None:
    """For each edit (target, source, count): arena[target:target + count] = values[source:source + count]."""
    launcher: Any = _edit_kernel[(edits.shape[0], triton.cdiv(longest, EDIT_BLOCK))]
    launcher(arena, edits, values, BLOCK=EDIT_BLOCK, num_warps=4)


@quick
@triton.jit
def _gather_kernel(
    out_ids,
    out_positions,
    out_entries,
    out_context_lens,
    rows,
    row_starts,
    token_ids,
    token_stride,
    num_computed,
    scalar_stride,
    BLOCK: tl.constexpr,
):
    entry = tl.program_id(0)
    block = tl.program_id(1)
    row = tl.load(rows + entry).to(tl.int64)
    start, stop = tl.load(row_starts + entry), tl.load(row_starts + entry + 1)
    count = stop - start
    is_real = row >= 0
    first = tl.load(num_computed + row * scalar_stride, mask=is_real, other=0)
    if block == 0:
        tl.store(out_context_lens + entry, tl.where(is_real, first + count, 0))
    places = block * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    is_held = places < tl.where(is_real, count, 0)
    ids = tl.load(token_ids + row * token_stride + first + places, mask=is_held, other=0)
    tl.store(out_ids + start + places, ids, mask=inside)
    tl.store(out_positions + start + places, first + places, mask=inside)
    tl.store(out_entries + start + places, entry + places * 0, mask=inside)


@quick
@triton.jit
def _table_kernel(
    out_table, out_stride, table, table_stride, rows, context_lens, PAGE_SIZE: tl.constexpr, BLOCK: tl.constexpr
):
    entry = tl.program_id(0)
    row = tl.load(rows + entry).to(tl.int64)
    num_pages = tl.cdiv(tl.load(context_lens + entry), PAGE_SIZE)
    places = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    held = places < num_pages
    pages = tl.load(table + row * table_stride + places, mask=held, other=0)
    tl.store(out_table + entry * out_stride + places, pages, mask=held)


def gather_tokens(
    out_ids: torch.Tensor,
    out_positions: torch.Tensor,
    out_entries: torch.Tensor,
    out_context_lens: torch.Tensor,
    rows: torch.Tensor,
    row_starts: torch.Tensor,
    token_ids: torch.Tensor,
    num_computed: torch.Tensor,
    max_new: int,
) -> None:
    """The next tokens of each row, entry after entry. A row of -1 is padding: its context is empty."""
    launcher: Any = _gather_kernel[(rows.shape[0], triton.cdiv(max_new, TOKEN_BLOCK))]
    launcher(
        out_ids,
        out_positions,
        out_entries,
        out_context_lens,
        rows,
        row_starts,
        token_ids,
        token_ids.stride(0),
        num_computed,
        num_computed.stride(0),
        BLOCK=TOKEN_BLOCK if max_new > 1 else 1,
        num_warps=1,
    )


def gather_table(
    out_table: torch.Tensor, table: torch.Tensor, rows: torch.Tensor, context_lens: torch.Tensor, page_size: int
) -> None:
    """The page tables of the rows, as far as their contexts reach."""
    launcher: Any = _table_kernel[(rows.shape[0], triton.cdiv(table.shape[1], PAGE_BLOCK))]
    launcher(
        out_table,
        out_table.stride(0),
        table,
        table.stride(0),
        rows,
        context_lens,
        PAGE_SIZE=page_size,
        BLOCK=PAGE_BLOCK,
        num_warps=1,
    )


@quick
@triton.jit(do_not_specialize=["num_entries"])
def _advance_kernel(
    token_ids,
    token_stride,
    num_computed,
    scalar_stride,
    rows,
    context_lens,
    draws,
    drawn,
    num_entries,
    vocab_size,
    BLOCK: tl.constexpr,
):
    entries = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = entries < num_entries
    row = tl.load(rows + entries, mask=inside, other=-1).to(tl.int64)
    is_real = row >= 0
    length = tl.load(context_lens + entries, mask=is_real, other=0)
    tl.store(num_computed + row * scalar_stride, length, mask=is_real)
    draw = tl.load(draws + entries, mask=is_real, other=-1)
    token = tl.load(drawn + draw, mask=draw >= 0, other=0)
    token = tl.where((token >= 0) & (token < vocab_size), token, 0)  # what a broken row drew may be no token
    tl.store(token_ids + row * token_stride + length, token, mask=draw >= 0)


def advance(
    token_ids: torch.Tensor,
    num_computed: torch.Tensor,
    rows: torch.Tensor,
    context_lens: torch.Tensor,
    draws: torch.Tensor,
    drawn: torch.Tensor,
    vocab_size: int,
) -> None:
    """The step is done: entry i has computed context_lens[i] tokens; drawn[draws[i]] follows, unless draws[i] is -1."""
    launcher: Any = _advance_kernel[(triton.cdiv(rows.shape[0], 128),)]
    launcher(
        token_ids,
        token_ids.stride(0),
        num_computed,
        num_computed.stride(0),
        rows,
        context_lens,
        draws,
        drawn,
        rows.shape[0],
        vocab_size,
        BLOCK=128,
        num_warps=4,
    )
