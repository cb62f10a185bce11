"""Attention of one query a row over pages: the decode step.

A row's context is cut into splits of a fixed length. How a row is cut, and the order in which its splits are put
together, follow from the row alone, so its result has the same bits in any batch and under any grid. The program that
finishes a row's last split puts them together; a row of one split writes its result at once.

Heads may come as the projection left them: then a program norms and turns the queries it needs itself, and the one that
takes a row's last split brings the new key and value into the pages first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from pagoda.kernels.cuda.launch import block_of
from pagoda.kernels.cuda.overlap import (
    EARLY_LAUNCH,
    LAUNCHES_EARLY,
    fetch_rows,
    launch_dependents,
    wait_for_earlier,
)
from pagoda.kernels.cuda.quick_launch import Launch, quick
from pagoda.kernels.cuda.rope_write import FreshHeads, turned_heads
from pagoda.kernels.cuda.tiles import (
    LOG2_E,
    LOWEST,
    PageTiles,
    cut_shared,
    load_rows,
    page_row,
    pages_are_paired,
    put_together,
    score,
    token_offsets,
    turned_step,
)

SPLIT_LEN = 512
SHORT_CONTEXT = 8192
# What rows share is cut at multiples of it.
SHARED_UNIT = 512
# The tensor cores take no fewer columns. Heads stand there; tokens, and the width of heads, where they take sixteen.
FEWEST_HEADS = 8
FETCHED_TOKENS = tl.constexpr(64)


@dataclass(frozen=True)
class DecodeTile:
    """Tokens that a program takes at a time, how it is run, and the splits it puts together at a time.

    `in_pages`: a tile lies in one page wherever pages allow it, and several tiles are on their way at once; all but the
    last of a split are fetched by the device's copy engine.
    """

    block_tokens: int
    num_warps: int
    num_stages: int
    merged_together: int = 8
    in_pages: bool = True


def decode_tile(split_len: int) -> DecodeTile:
    """The best of benchmarks/gpu/kernels.py on an H200: one warp a program, unless each has a single tile to take."""
    return DecodeTile(64, 2, 1, in_pages=False) if split_len <= 64 else DecodeTile(16, 1, 3, 4)


@dataclass(frozen=True, eq=False)
class DecodeWorkspace:
    """What the splits of a row leave for the program that finishes last. Serves one launch at a time.

    `num_done` counts the splits that are done, by row and key/value head; it is all zeros between launches.
    """

    split_len: int
    mixed: torch.Tensor  # [rows, splits, H, E] float32
    log_totals: torch.Tensor  # [rows, splits, H] float32
    num_done: torch.Tensor  # [rows, K] int32


class DecodeCut(NamedTuple):
    """Up to so many rows are cut into splits of so many tokens; each row has at least so many programs."""

    most_rows: int
    split_len: int
    fewest_programs: int


# The quickest on an H200: few rows fill the device only when they are cut finely.
FINER_CUTS = (DecodeCut(8, 64, 4), DecodeCut(64, 256, 8))
# With one a row the longest are at work when all others are done: 90 % of the read rate, and 100 % with four.
FEWEST_PROGRAMS = 4


def decode_cuts(max_rows: int, max_context: int) -> list[DecodeCut]:
    """By rows, the fewest first. The many pieces of a long row would take too long to put together again."""
    finer = FINER_CUTS if max_context <= SHORT_CONTEXT else ()
    fewer = [cut for cut in finer if cut.most_rows < max_rows]
    last = (*finer, DecodeCut(max_rows, SPLIT_LEN, FEWEST_PROGRAMS))[len(fewer)]
    return [*fewer, last._replace(most_rows=max_rows)]


def decode_workspace(
    num_rows: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    max_context: int,
    device: torch.device | str,
    split_len: int = SPLIT_LEN,
) -> DecodeWorkspace:
    """For up to `num_rows` rows of up to `max_context` tokens, some of them shared."""
    splits = triton.cdiv(max_context, min(split_len, SHARED_UNIT)) + 1
    return DecodeWorkspace(
        split_len,
        torch.empty((num_rows, splits, num_heads, head_dim), dtype=torch.float32, device=device),
        torch.empty((num_rows, splits, num_heads), dtype=torch.float32, device=device),
        torch.zeros((num_rows, num_kv_heads), dtype=torch.int32, device=device),
    )


def decode_attention(
    out: torch.Tensor,
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    page_table: torch.Tensor,
    context_lens: torch.Tensor,
    scale: float,
    window: int,
    workspace: DecodeWorkspace,
    programs_per_row: int | None = None,
    shared_lens: torch.Tensor | None = None,
    shared_pieces: int = 1,
    tile: DecodeTile | None = None,
    fresh: FreshHeads | None = None,
    page_tiles: PageTiles | None = None,
) -> Launch | None:
    """out[r] = attention of q[r] [H, E] over the context_lens[r] tokens that page_table[r] finds; zeros where it is 0.

    Pages are [pages, page size, K, E], or a view that orders the middle axes otherwise. `programs_per_row` times K
    programs work on each row; more than a row has splits are idle, with fewer each takes several. It does not change
    the result. Rows of more tokens than the workspace was made for must not occur. The first shared_lens[r] tokens of
    a row are left to the kernel before, which brings them into the workspace as its first splits, at most
    `shared_pieces` (see shared_attention.py); the row has others besides. Whoever finishes a row puts it together.
    `fresh` heads take the place of q, and the last token of a row is still to be written to its page. With `page_tiles`
    the device's copy engine fetches keys and values. What is given back may be launched again on other pages that lie
    alike.
    """
    assert fresh is None or shared_lens is None, "the shared part wants its queries turned beforehand"
    assert pages_are_paired(k_pages, v_pages), "keys and values must lie alike, with a head's numbers side by side"
    assert q.stride(2) == 1 and out.stride(2) == 1 and page_table.stride(1) == 1
    num_rows, num_heads, head_dim = q.shape
    _, page_size, num_kv_heads, _ = k_pages.shape
    max_splits = workspace.mixed.shape[1]
    assert num_rows <= len(workspace.mixed), f"a workspace of {len(workspace.mixed)} rows for {num_rows}"
    group = num_heads // num_kv_heads
    tile = tile or decode_tile(workspace.split_len)
    in_pages = tile.in_pages and window == 0 and page_size % tile.block_tokens == 0
    tiles = page_tiles.of(tile.block_tokens) if page_tiles is not None and in_pages else None
    launch: Launch | None = _decode[(num_kv_heads, num_rows, min(programs_per_row or max_splits, max_splits))](
        out,
        q,
        k_pages,
        v_pages,
        page_table,
        context_lens,
        shared_lens,
        shared_pieces,
        workspace.mixed,
        workspace.log_totals,
        workspace.num_done,
        scale * LOG2_E,
        window,
        max_splits,
        out.stride(0),
        out.stride(1),
        q.stride(0),
        q.stride(1),
        k_pages.stride(0),
        k_pages.stride(1),
        k_pages.stride(2),
        page_table.stride(0),
        None if tiles is None else tiles.keys,
        None if tiles is None else tiles.values,
        *(fresh.arguments() if fresh is not None else FreshHeads.NO_ARGUMENTS),
        GROUP=group,
        GROUP_BLOCK=block_of(group),
        HEAD_BLOCK=max(FEWEST_HEADS, block_of(group)),
        WIDTH=head_dim,
        WIDTH_BLOCK=max(16, block_of(head_dim)),
        PAGE_SIZE=page_size,
        SPLIT_LEN=workspace.split_len,
        BLOCK_TOKENS=tile.block_tokens,
        WHOLE=tiles is not None,
        IN_PAGES=in_pages,
        SHARED_UNIT=SHARED_UNIT,
        MERGED_TOGETHER=tile.merged_together,
        IS_FRESH=fresh is not None,
        HALF=0 if fresh is None else fresh.cosines.shape[1],
        INTERLEAVED=fresh is not None and fresh.interleaved,
        NORMS=fresh is not None and fresh.norms is not None,
        EARLY=LAUNCHES_EARLY,
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
        **EARLY_LAUNCH,
    )
    return launch


@quick
@triton.jit(do_not_specialize=["window", "max_splits", "shared_pieces"])
def _decode(
    out,
    q,
    k_pages,
    v_pages,
    page_table,
    context_lens,
    shared_lens,
    shared_pieces,
    split_mixed,
    split_totals,
    num_done,
    scale,
    window,
    max_splits,
    out_row,
    out_head,
    q_row,
    q_head,
    page_stride,
    token_stride,
    kv_head_stride,
    table_row,
    k_tiles,
    v_tiles,
    heads_x,
    heads_row,
    cosines,
    sines,
    query_norm,
    key_norm,
    epsilon,
    offset,
    GROUP: tl.constexpr,
    GROUP_BLOCK: tl.constexpr,
    HEAD_BLOCK: tl.constexpr,
    WIDTH: tl.constexpr,
    WIDTH_BLOCK: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    SPLIT_LEN: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr,
    WHOLE: tl.constexpr,
    IN_PAGES: tl.constexpr,
    SHARED_UNIT: tl.constexpr,
    MERGED_TOGETHER: tl.constexpr,
    IS_FRESH: tl.constexpr,
    HALF: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    NORMS: tl.constexpr,
    EARLY: tl.constexpr,
):
    launch_dependents(EARLY)
    kv_head, row, program = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    num_kv_heads, num_programs = tl.num_programs(0), tl.num_programs(2)
    if shared_lens is not None:
        # The kernel before is at work on what rows share, beside this one. It must have ended when this one has: one
        # program waits for it, the last to start.
        if (kv_head == num_kv_heads - 1) & (row == tl.num_programs(1) - 1) & (program == num_programs - 1):
            wait_for_earlier(EARLY)
    elif not IS_FRESH:
        wait_for_earlier(EARLY)
    context_len = tl.load(context_lens + row)
    first = tl.where(window > 0, tl.maximum(context_len - window, 0), 0)
    num_shared = 0
    if shared_lens is not None:
        first = tl.load(shared_lens + row)
        num_shared, _ = cut_shared(first, shared_pieces, SHARED_UNIT)
    num_splits = tl.cdiv(context_len - first, SPLIT_LEN)
    table = page_table + row.to(tl.int64) * table_row
    keys, values = k_pages + kv_head * kv_head_stride, v_pages + kv_head * kv_head_stride
    lanes = tl.arange(0, WIDTH_BLOCK)
    if IS_FRESH:
        # Lengths and pages are those of the step, and what the pages hold was written in steps before: only the heads
        # must be waited for. The first split of a program that has few is asked for meanwhile.
        if EARLY and SPLIT_LEN <= FETCHED_TOKENS:
            own = first + program * SPLIT_LEN + tl.arange(0, SPLIT_LEN)
            is_own = own < context_len - 1
            places = token_offsets(table, own, is_own, page_stride, token_stride, PAGE_SIZE)
            fetch_rows(keys, places, is_own, WIDTH_BLOCK)
            fetch_rows(values, places, is_own, WIDTH_BLOCK)
        wait_for_earlier(EARLY)

    heads = tl.arange(0, HEAD_BLOCK)
    is_head = heads < GROUP
    is_number = is_head[:, None] & (lanes < WIDTH)[None, :]
    first_head = kv_head * GROUP
    result = out + row.to(tl.int64) * out_row + (first_head + heads)[:, None] * out_head + lanes[None, :]
    if num_splits == 0:
        if program == 0:
            tl.store(result, tl.zeros([HEAD_BLOCK, WIDTH_BLOCK], out.dtype.element_ty), mask=is_number)
        return
    if program >= num_splits:
        return

    own_heads = heads_x + row.to(tl.int64) * heads_row if IS_FRESH else q
    if IS_FRESH:
        queries = turned_heads(
            own_heads + (first_head + heads) * WIDTH, is_head, lanes, context_len - 1, cosines, sines, query_norm,
            epsilon, offset, WIDTH, HALF, INTERLEAVED, NORMS
        ).to(out.dtype.element_ty)  # fmt: skip
    else:
        query_offsets = (first_head + heads)[:, None] * q_head + lanes[None, :]
        queries = tl.load(q + row.to(tl.int64) * q_row + query_offsets, mask=is_number, other=0.0)
    for split in range(program, num_splits, num_programs):
        begin = first + split * SPLIT_LEN
        end = tl.minimum(begin + SPLIT_LEN, context_len)
        top = tl.full([HEAD_BLOCK], LOWEST, tl.float32)
        total = tl.zeros([BLOCK_TOKENS, HEAD_BLOCK], tl.float32)
        mixed = tl.zeros([WIDTH_BLOCK, HEAD_BLOCK], tl.float32)
        if IS_FRESH:  # noqa: SIM102 - known when the kernel is built
            if split == num_splits - 1:
                _write_last(
                    own_heads, keys, values, table, context_len - 1, kv_head, num_kv_heads, lanes, cosines, sines,
                    key_norm, epsilon, offset, page_stride, token_stride,
                    GROUP, WIDTH, PAGE_SIZE, HALF, INTERLEAVED, NORMS
                )  # fmt: skip
        gathered = begin
        if WHOLE:
            # The last token of a row may just have been written, by other means than those of the copy engine.
            gathered = begin + (end - 1 - begin) // BLOCK_TOKENS * BLOCK_TOKENS
            first_row = page_row(table, begin, PAGE_SIZE)
            for start in range(begin, gathered, BLOCK_TOKENS):
                key_tile = k_tiles.load([first_row, kv_head * WIDTH])
                value_tile = v_tiles.load([first_row, kv_head * WIDTH])
                # A tile ahead, so that tiles themselves can be asked for earlier.
                first_row = page_row(table, tl.minimum(start + BLOCK_TOKENS, end - 1), PAGE_SIZE)
                key_tile, value_tile = key_tile.to(queries.dtype), value_tile.to(queries.dtype)
                top, total, mixed = turned_step(score(key_tile, queries), scale, value_tile, top, total, mixed)
        page = tl.load(table + gathered // PAGE_SIZE)
        # What is left of whole tiles is one more: nothing to ask for ahead.
        for start in tl.range(gathered, end, BLOCK_TOKENS, num_stages=1 if WHOLE else None):
            positions = start + tl.arange(0, BLOCK_TOKENS)
            is_held = positions < end
            if IN_PAGES:
                # A tile lies in one page, whose number was asked for a tile ago: so tiles can be asked for earlier.
                offsets = page.to(tl.int64) * page_stride + (positions % PAGE_SIZE) * token_stride
                page = tl.load(table + tl.minimum(start + BLOCK_TOKENS, end - 1) // PAGE_SIZE)
            else:
                offsets = token_offsets(table, positions, is_held, page_stride, token_stride, PAGE_SIZE)
            key_tile = load_rows(keys, offsets, is_held, lanes, WIDTH, WIDTH_BLOCK)
            value_tile = load_rows(values, offsets, is_held, lanes, WIDTH, WIDTH_BLOCK)
            key_tile, value_tile = key_tile.to(queries.dtype), value_tile.to(queries.dtype)
            scores = tl.where(is_held[:, None], score(key_tile, queries), -float("inf"))
            top, total, mixed = turned_step(scores, scale, value_tile, top, total, mixed)
        total = tl.sum(total, 0)
        mixed = tl.trans(mixed) * (1.0 / total)[:, None]
        if num_shared + num_splits == 1:
            tl.store(result, mixed.to(out.dtype.element_ty), mask=is_number)
        else:
            slots = (row.to(tl.int64) * max_splits + num_shared + split) * num_kv_heads * GROUP + first_head + heads
            tl.store(split_mixed + slots[:, None] * WIDTH + lanes[None, :], mixed, mask=is_number)
            tl.store(split_totals + slots, top + tl.log2(total), mask=is_head)

    if num_shared + num_splits > 1:
        finished = (num_splits - program + num_programs - 1) // num_programs
        # All threads have stored before one of them says so; acq_rel makes the others' splits visible to the last.
        tl.debug_barrier()
        counter = num_done + row * num_kv_heads + kv_head
        before = tl.atomic_add(counter, finished, sem="acq_rel")
        if before + finished == num_shared + num_splits:
            tl.store(counter, 0)
            group = tl.arange(0, GROUP_BLOCK)
            slots = row.to(tl.int64) * max_splits * num_kv_heads * GROUP + first_head + group
            if shared_lens is not None:  # as the kernel before does it where it comes last
                merged = put_together(
                    split_mixed, split_totals, slots, num_kv_heads * GROUP, num_shared + num_splits,
                    num_shared + num_splits, group < GROUP, lanes, WIDTH, WIDTH_BLOCK
                )  # fmt: skip
            else:
                merged = _merge(
                    split_mixed, split_totals, slots, num_kv_heads * GROUP, num_splits, group < GROUP, lanes,
                    GROUP_BLOCK, WIDTH, WIDTH_BLOCK, MERGED_TOGETHER
                )  # fmt: skip
            merged_result = out + row.to(tl.int64) * out_row + (first_head + group)[:, None] * out_head + lanes[None, :]
            is_merged = (group < GROUP)[:, None] & (lanes < WIDTH)[None, :]
            tl.store(merged_result, merged.to(out.dtype.element_ty), mask=is_merged)


@triton.jit
def _write_last(
    own_heads, keys, values, table, position, kv_head, num_kv_heads, lanes, cosines, sines,
    key_norm, epsilon, offset, page_stride, token_stride,
    GROUP: tl.constexpr, WIDTH: tl.constexpr, PAGE_SIZE: tl.constexpr, HALF: tl.constexpr,
    INTERLEAVED: tl.constexpr, NORMS: tl.constexpr,
):  # fmt: skip
    """The key and the value of a row's last token into its page; all threads of the program see them afterwards."""
    one = tl.arange(0, 1)
    source = own_heads + (num_kv_heads * GROUP + kv_head + one) * WIDTH
    key = turned_heads(
        source, one == 0, lanes, position, cosines, sines, key_norm, epsilon, offset, WIDTH, HALF, INTERLEAVED, NORMS
    )
    is_lane = (one == 0)[:, None] & (lanes < WIDTH)[None, :]
    value = tl.load(source[:, None] + num_kv_heads * WIDTH + lanes[None, :], mask=is_lane, other=0.0)
    page = tl.load(table + position // PAGE_SIZE).to(tl.int64)
    place = page * page_stride + (position % PAGE_SIZE) * token_stride + one[:, None] + lanes[None, :]
    tl.store(keys + place, key.to(keys.dtype.element_ty), mask=is_lane)
    tl.store(values + place, value.to(values.dtype.element_ty), mask=is_lane)
    tl.debug_barrier()


@triton.jit
def _merge(
    split_mixed,
    split_totals,
    slots,
    split_stride,
    num_splits,
    is_head,
    lanes,
    GROUP_BLOCK: tl.constexpr,
    WIDTH: tl.constexpr,
    WIDTH_BLOCK: tl.constexpr,
    MERGED_TOGETHER: tl.constexpr,
):
    """The splits of one row for the heads at `slots` of its first split, some splits at a time, in order."""
    top = tl.full([GROUP_BLOCK], LOWEST, tl.float32)
    total = tl.zeros([GROUP_BLOCK], tl.float32)
    mixed = tl.zeros([GROUP_BLOCK, WIDTH_BLOCK], tl.float32)
    for start in range(0, num_splits, MERGED_TOGETHER):
        splits = start + tl.arange(0, MERGED_TOGETHER)
        is_cell = (splits < num_splits)[:, None] & is_head[None, :]
        cells = splits[:, None] * split_stride + slots[None, :]
        log_totals = tl.load(split_totals + cells, mask=is_cell, other=-float("inf"), cache_modifier=".cg")
        parts = tl.load(
            split_mixed + cells[:, :, None] * WIDTH + lanes[None, None, :],
            mask=is_cell[:, :, None] & (lanes < WIDTH)[None, None, :],
            other=0.0,
            cache_modifier=".cg",
        )
        new_top = tl.maximum(top, tl.max(log_totals, 0))
        shares = tl.exp2(log_totals - new_top[None, :])
        shrink = tl.exp2(top - new_top)
        total = total * shrink + tl.sum(shares, 0)
        mixed = mixed * shrink[:, None] + tl.sum(parts * shares[:, :, None], 0)
        top = new_top
    return mixed * (1.0 / tl.where(is_head, total, 1.0))[:, None]
