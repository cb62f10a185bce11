"""Attention of one query a row over pages: the decode step.

Contexts are cut into splits by a plan of the step (decode_plan.py), a program for each split and key/value head. The
splits of a row are put together in order: by the program that finishes last, and where they are many, by the last of
each few of them first. A row of one split writes its result at once.

Heads may come as the projection left them: then a program norms and turns the queries it needs itself, and the one that
takes a row's last split brings the new key and value into the pages first.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from pagoda.kernels.cuda.decode_plan import (
    BEGIN,
    END,
    LENGTH,
    NUM_SPLITS,
    RECORD_WIDTH,
    ROW,
    SPLIT,
    DecodePlan,
    PlanKind,
)
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
    as_multiplied,
    cut_shared,
    load_rows,
    page_row,
    pages_are_paired,
    score,
    take_splits,
    token_offsets,
    turned_pair_step,
    turned_step,
)

# The tensor cores take no fewer columns. Heads stand there; tokens, and the width of heads, where they take sixteen.
FEWEST_HEADS = 8
# So few rows have few splits, and each takes more threads.
FEW_ROWS = 64
# Splits of a row beyond so many are put together in parts of so many first.
MOST_AT_ONCE = tl.constexpr(16)
SPLITS_A_PART = tl.constexpr(8)


@dataclass(frozen=True)
class DecodeTile:
    """Tokens that a program takes at a time, how it is run, and the splits it puts together at a time.

    Whole tiles are fetched by the device's copy engine, several at once. What is left of a split, or all of it where
    pages do not consist of such tiles or `takes_whole` is not set, is gathered in tiles of `tail_tokens`. `in_pages`:
    such a tile lies in one page wherever pages allow it. `most_registers` a thread for whole tiles: a compiler that is
    told so much takes them, and otherwise saves some for programs that find no shared memory beside these.
    """

    block_tokens: int
    num_warps: int
    num_stages: int
    merged_together: int = 4
    tail_tokens: int = 16
    in_pages: bool = True
    takes_whole: bool = True
    most_registers: int | None = None


# What rows share is cut at multiples of it.
SHARED_UNIT = 512
# The best of benchmarks/gpu/kernels.py on an H200.
MANY_TILE = DecodeTile(16, 1, 3, most_registers=168)
FEW_TILE = DecodeTile(32, 2, 3, merged_together=8, tail_tokens=64, in_pages=False)
# Of pages of eight bits: half the bytes a token, and more work on each.
BYTE_TILE = DecodeTile(32, 1, 3, merged_together=8, tail_tokens=32, in_pages=False)


def decode_tile(num_rows: int, of_bytes: bool = False) -> DecodeTile:
    """`of_bytes`: pages hold numbers of eight bits."""
    if of_bytes and num_rows > 1:
        return BYTE_TILE
    return FEW_TILE if num_rows <= FEW_ROWS else MANY_TILE


@dataclass(frozen=True, eq=False)
class DecodeWorkspace:
    """What splits leave for the program that finishes last. Serves one launch at a time.

    The slots of a plan come first, then those of what rows share: `num_shared` of them. What counts the splits that are
    done, by part and by row, is all zeros between launches.
    """

    mixed: torch.Tensor  # [slots, H, E] float32
    log_totals: torch.Tensor  # [slots, H] float32
    parts_done: torch.Tensor  # [slots, K] int32
    rows_done: torch.Tensor  # [rows, K] int32
    num_shared: int

    @property
    def first_shared(self) -> int:
        return len(self.mixed) - self.num_shared


def decode_workspace(
    num_rows: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    device: torch.device | str,
    num_shared: int = 0,
) -> DecodeWorkspace:
    """For up to `num_rows` rows; with room for so many pieces of what they share."""
    num_slots = PlanKind(num_kv_heads).num_slots(num_rows)
    slots = num_slots + num_shared
    assert slots * num_heads * head_dim < 1 << 31, "places in it are numbers of 32 bits"
    return DecodeWorkspace(
        torch.empty((slots, num_heads, head_dim), dtype=torch.float32, device=device),
        torch.empty((slots, num_heads), dtype=torch.float32, device=device),
        torch.zeros((num_slots, num_kv_heads), dtype=torch.int32, device=device),
        torch.zeros((num_rows, num_kv_heads), dtype=torch.int32, device=device),
        num_shared,
    )


def decode_attention(
    out: torch.Tensor,
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    page_table: torch.Tensor,
    plan: DecodePlan,
    scale: float,
    workspace: DecodeWorkspace,
    shared_lens: torch.Tensor | None = None,
    shared_pieces: int = 1,
    tile: DecodeTile | None = None,
    fresh: FreshHeads | None = None,
    page_tiles: PageTiles | None = None,
) -> Launch | None:
    """out[r] = attention of q[r] [H, E] over the tokens that page_table[r] finds and the plan tells of; zeros for none.

    Pages are [pages, page size, K, E], or a view that orders the middle axes otherwise. The plan was made with the same
    shared_lens: the first shared_lens[r] tokens of a row are left to the kernel before, which brings them into the
    workspace, in at most `shared_pieces` (see shared_attention.py); the row has others besides. Whoever finishes a row
    puts it together. `fresh` heads take the place of q, and the last token of a row is still to be written to its page.
    With `page_tiles` the device's copy engine fetches keys and values. What is given back may be launched again on
    other pages that lie alike.
    """
    assert fresh is None or shared_lens is None, "the shared part wants its queries turned beforehand"
    assert pages_are_paired(k_pages, v_pages), "keys and values must lie alike, with a head's numbers side by side"
    assert q.stride(2) == 1 and out.stride(2) == 1 and page_table.stride(1) == 1
    num_rows, num_heads, head_dim = q.shape
    _, page_size, num_kv_heads, _ = k_pages.shape
    assert num_rows <= len(workspace.rows_done), f"a workspace of {len(workspace.rows_done)} rows for {num_rows}"
    assert plan.kind.num_kv_heads == num_kv_heads
    group = num_heads // num_kv_heads
    tile = tile or decode_tile(num_rows, k_pages.element_size() == 1)
    assert tile.tail_tokens % tile.block_tokens == 0, "whole tiles end where the tail begins"
    is_whole = plan.kind.window == 0  # splits begin where pages do, or whole tiles behind that
    tiles = page_tiles.of(tile.block_tokens) if page_tiles is not None and tile.takes_whole and is_whole else None
    launch: Launch | None = _decode[(num_kv_heads, plan.kind.num_slots(num_rows))](
        out,
        q,
        k_pages,
        v_pages,
        page_table,
        plan.records,
        shared_lens,
        shared_pieces,
        workspace.mixed,
        workspace.log_totals,
        workspace.parts_done,
        workspace.rows_done,
        workspace.first_shared,
        scale * LOG2_E,
        out.stride(0),
        out.stride(1),
        q.stride(0),
        q.stride(1),
        k_pages.stride(0),
        k_pages.stride(1),
        k_pages.stride(2),
        page_table.stride(0),
        page_table.shape[1] * page_size,
        None if tiles is None else tiles.keys,
        None if tiles is None else tiles.value_pairs or tiles.values,
        *(fresh.arguments() if fresh is not None else FreshHeads.NO_ARGUMENTS),
        GROUP=group,
        GROUP_BLOCK=block_of(group),
        HEAD_BLOCK=max(FEWEST_HEADS, block_of(group)),
        WIDTH=head_dim,
        WIDTH_BLOCK=max(16, block_of(head_dim)),
        PAGE_SIZE=page_size,
        BLOCK_TOKENS=tile.block_tokens,
        TAIL_TOKENS=tile.tail_tokens,
        WHOLE=tiles is not None,
        IS_ONE_ROW=num_rows == 1,
        IN_PAGES=tile.in_pages and is_whole and page_size % tile.tail_tokens == 0,
        SHARED_UNIT=SHARED_UNIT,
        MERGED_TOGETHER=tile.merged_together,
        IS_FRESH=fresh is not None,
        HALF=0 if fresh is None else fresh.cosines.shape[1],
        INTERLEAVED=fresh is not None and fresh.interleaved,
        NORMS=fresh is not None and fresh.norms is not None,
        EARLY=LAUNCHES_EARLY,
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
        maxnreg=None if tiles is None else tile.most_registers,
        **EARLY_LAUNCH,
    )
    return launch


@quick
@triton.jit(do_not_specialize=["shared_pieces", "first_shared", "table_tokens"])
def _decode(
    out,
    q,
    k_pages,
    v_pages,
    page_table,
    records,
    shared_lens,
    shared_pieces,
    split_mixed,
    split_totals,
    parts_done,
    rows_done,
    first_shared,
    scale,
    out_row,
    out_head,
    q_row,
    q_head,
    page_stride,
    token_stride,
    kv_head_stride,
    table_row,
    table_tokens,
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
    BLOCK_TOKENS: tl.constexpr,
    TAIL_TOKENS: tl.constexpr,
    WHOLE: tl.constexpr,
    IS_ONE_ROW: tl.constexpr,
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
    kv_head, slot = tl.program_id(0), tl.program_id(1)
    num_kv_heads = tl.num_programs(0)
    if shared_lens is not None:
        # The kernel before is at work on what rows share, beside this one. It must have ended when this one has: one
        # program waits for it, the last to start.
        if (kv_head == num_kv_heads - 1) & (slot == tl.num_programs(1) - 1):
            wait_for_earlier(EARLY)
    elif not IS_FRESH:
        wait_for_earlier(EARLY)
    # The plan, lengths and pages are those of the step, and what the pages hold was written in steps before.
    record = records + slot * RECORD_WIDTH
    row, begin, end = tl.load(record + ROW), tl.load(record + BEGIN), tl.load(record + END)
    length, split, num_splits = tl.load(record + LENGTH), tl.load(record + SPLIT), tl.load(record + NUM_SPLITS)
    FETCHES: tl.constexpr = EARLY and IS_FRESH and TAIL_TOKENS >= 64
    if FETCHES and IS_ONE_ROW:
        # The splits of a single row are mostly single tiles: where one lies is looked up beside the plan.
        own = slot * TAIL_TOKENS + tl.arange(0, TAIL_TOKENS)
        places = token_offsets(page_table, own, own < table_tokens, page_stride, token_stride, PAGE_SIZE)
    if row < 0:
        return
    table = page_table + row.to(tl.int64) * table_row
    keys, values = k_pages + kv_head * kv_head_stride, v_pages + kv_head * kv_head_stride
    lanes = tl.arange(0, WIDTH_BLOCK)
    if IS_FRESH:
        # Only the heads must be waited for. The first tile is asked for meanwhile.
        if FETCHES:
            if not IS_ONE_ROW:
                own = begin + tl.arange(0, TAIL_TOKENS)
                places = token_offsets(table, own, own < end, page_stride, token_stride, PAGE_SIZE)
            is_own = own < tl.minimum(end, length - 1)
            fetch_rows(keys, places, is_own, WIDTH_BLOCK)
            fetch_rows(values, places, is_own, WIDTH_BLOCK)
        wait_for_earlier(EARLY)

    heads = tl.arange(0, HEAD_BLOCK)
    is_head = heads < GROUP
    is_number = is_head[:, None] & (lanes < WIDTH)[None, :]
    first_head = kv_head * GROUP
    result = out + row.to(tl.int64) * out_row + (first_head + heads)[:, None] * out_head + lanes[None, :]
    if length == 0:
        tl.store(result, tl.zeros([HEAD_BLOCK, WIDTH_BLOCK], out.dtype.element_ty), mask=is_number)
        return

    own_heads = heads_x + row.to(tl.int64) * heads_row if IS_FRESH else q
    if IS_FRESH:
        queries = turned_heads(
            own_heads + (first_head + heads) * WIDTH, is_head, lanes, length - 1, cosines, sines, query_norm,
            epsilon, offset, WIDTH, HALF, INTERLEAVED, NORMS
        ).to(out.dtype.element_ty)  # fmt: skip
        if split == num_splits - 1:
            _write_last(
                own_heads, keys, values, table, length - 1, kv_head, num_kv_heads, lanes, cosines, sines,
                key_norm, epsilon, offset, page_stride, token_stride,
                GROUP, WIDTH, PAGE_SIZE, HALF, INTERLEAVED, NORMS
            )  # fmt: skip
    else:
        query_offsets = (first_head + heads)[:, None] * q_head + lanes[None, :]
        queries = tl.load(q + row.to(tl.int64) * q_row + query_offsets, mask=is_number, other=0.0)
    queries = as_multiplied(queries, k_pages)
    top = tl.full([HEAD_BLOCK], LOWEST, tl.float32)
    total = tl.zeros([BLOCK_TOKENS, HEAD_BLOCK], tl.float32)
    mixed = tl.zeros([WIDTH_BLOCK, HEAD_BLOCK], tl.float32)
    gathered = begin
    if WHOLE:
        # The last token of a row may just have been written, by other means than those of the copy engine.
        gathered = begin + (end - 1 - begin) // TAIL_TOKENS * TAIL_TOKENS
        if TAIL_TOKENS == BLOCK_TOKENS or gathered > begin:  # most have a tail alone where it is longer
            top, total, mixed = _take_whole_tiles(
                queries, table, k_tiles, v_tiles, kv_head, begin, gathered, end, scale, top, total, mixed,
                WIDTH, PAGE_SIZE, BLOCK_TOKENS
            )  # fmt: skip
    top, total, mixed = _take_tail(
        queries, keys, values, table, gathered, end, scale, page_stride, token_stride, lanes, top, tl.sum(total, 0),
        mixed, HEAD_BLOCK, WIDTH, WIDTH_BLOCK, PAGE_SIZE, TAIL_TOKENS, IN_PAGES, 1 if WHOLE else None
    )  # fmt: skip
    mixed = tl.trans(mixed) * (1.0 / total)[:, None]
    num_shared = 0
    if shared_lens is not None:
        num_shared, _ = cut_shared(tl.load(shared_lens + row), shared_pieces, SHARED_UNIT)
    if num_shared + num_splits == 1:
        tl.store(result, mixed.to(out.dtype.element_ty), mask=is_number)
        return
    cells = slot * num_kv_heads * GROUP + first_head + heads
    tl.store(split_mixed + cells[:, None] * WIDTH + lanes[None, :], mixed, mask=is_number)
    tl.store(split_totals + cells, top + tl.log2(total), mask=is_head)

    # All threads have stored before one of them says so; acq_rel makes the others' splits visible to the last.
    tl.debug_barrier()
    group = tl.arange(0, GROUP_BLOCK)
    is_merged = (group < GROUP)[:, None] & (lanes < WIDTH)[None, :]
    is_done = num_splits > 0
    if num_splits > MOST_AT_ONCE:
        first_slot = slot - split % SPLITS_A_PART
        in_part = tl.minimum(num_splits - split // SPLITS_A_PART * SPLITS_A_PART, SPLITS_A_PART)
        counter = parts_done + first_slot * num_kv_heads + kv_head
        is_done = tl.atomic_add(counter, 1, sem="acq_rel") + 1 == in_part
        if is_done:
            tl.store(counter, 0)
            part_cells = first_slot * num_kv_heads * GROUP + first_head + group
            part, log_total = _merge(
                split_mixed, split_totals, part_cells, num_kv_heads * GROUP, in_part, group < GROUP, lanes,
                GROUP_BLOCK, WIDTH, WIDTH_BLOCK, MERGED_TOGETHER
            )  # fmt: skip
            tl.debug_barrier()  # what is read above is written over
            tl.store(split_mixed + part_cells[:, None] * WIDTH + lanes[None, :], part, mask=is_merged)
            tl.store(split_totals + part_cells, log_total, mask=group < GROUP)
            tl.debug_barrier()
    if is_done:
        num_parts, part_stride = parts_of(num_splits)
        counter = rows_done + row * num_kv_heads + kv_head
        if tl.atomic_add(counter, 1, sem="acq_rel") + 1 == num_shared + num_parts:
            tl.store(counter, 0)
            row_cells = (slot - split) * num_kv_heads * GROUP + first_head + group
            stride = part_stride * num_kv_heads * GROUP
            if shared_lens is not None:  # as the kernel before does it where it comes last
                shared_cells = (first_shared + row * shared_pieces) * num_kv_heads * GROUP + first_head
                merged = put_together(
                    split_mixed, split_totals, shared_cells + group, num_shared, num_shared, row_cells, stride,
                    num_parts, num_parts, num_kv_heads * GROUP, group < GROUP, lanes, WIDTH, WIDTH_BLOCK
                )  # fmt: skip
            else:
                merged, _ = _merge(
                    split_mixed, split_totals, row_cells, stride, num_parts, group < GROUP, lanes,
                    GROUP_BLOCK, WIDTH, WIDTH_BLOCK, MERGED_TOGETHER
                )  # fmt: skip
            merged_result = out + row.to(tl.int64) * out_row + (first_head + group)[:, None] * out_head + lanes[None, :]
            tl.store(merged_result, merged.to(out.dtype.element_ty), mask=is_merged)


@triton.jit
def parts_of(num_splits):
    """What is put together in the end of a row of so many splits of its own: so many, each so many slots on."""
    is_many = num_splits > MOST_AT_ONCE
    num_parts = tl.where(is_many, tl.cdiv(num_splits, SPLITS_A_PART), num_splits)
    return num_parts, tl.where(is_many, SPLITS_A_PART, 1)


@triton.jit
def _take_whole_tiles(
    queries, table, k_tiles, v_tiles, kv_head, begin, until, end, scale, top, total, mixed,
    WIDTH: tl.constexpr, PAGE_SIZE: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """The state is that of the beginning: nothing is mixed yet."""
    first_row = page_row(table, begin, PAGE_SIZE)
    PAIRED: tl.constexpr = v_tiles.dtype == tl.int16
    lower = tl.zeros([WIDTH // 2, queries.shape[0]], tl.float32)
    upper = tl.zeros([WIDTH // 2, queries.shape[0]], tl.float32)
    for start in range(begin, until, TOKENS):
        key_tile = k_tiles.load([first_row, kv_head * WIDTH])
        value_tile = v_tiles.load([first_row, kv_head * WIDTH // (2 if PAIRED else 1)])
        # A tile ahead, so that tiles themselves can be asked for earlier.
        first_row = page_row(table, tl.minimum(start + TOKENS, end - 1), PAGE_SIZE)
        scores = score(key_tile.to(queries.dtype), queries)
        if PAIRED:  # what is mixed of the lower numbers and of the upper ones
            top, total, lower, upper = turned_pair_step(
                scores, scale, value_tile, top, total, lower, upper, queries.dtype
            )  # fmt: skip
        else:
            top, total, mixed = turned_step(scores, scale, value_tile.to(queries.dtype), top, total, mixed)
    if PAIRED:
        mixed = tl.reshape(tl.permute(tl.join(lower, upper), [0, 2, 1]), [WIDTH, queries.shape[0]])
    return top, total, mixed


@triton.jit
def _take_tail(
    queries, keys, values, table, begin, end, scale, page_stride, token_stride, lanes, top, total, mixed,
    HEAD_BLOCK: tl.constexpr, WIDTH: tl.constexpr, WIDTH_BLOCK: tl.constexpr, PAGE_SIZE: tl.constexpr,
    TOKENS: tl.constexpr, IN_PAGES: tl.constexpr, NUM_STAGES: tl.constexpr,
):  # fmt: skip
    """Gather the tokens from `begin` on, a tile or more; the total is a number a head before and after."""
    totals = tl.zeros([TOKENS, HEAD_BLOCK], tl.float32)
    before = top
    page = tl.load(table + begin // PAGE_SIZE)
    for start in tl.range(begin, end, TOKENS, num_stages=NUM_STAGES):
        positions = start + tl.arange(0, TOKENS)
        is_held = positions < end
        if IN_PAGES:
            # A tile lies in one page, whose number was asked for a tile ago: so tiles can be asked for earlier.
            offsets = page.to(tl.int64) * page_stride + (positions % PAGE_SIZE) * token_stride
            page = tl.load(table + tl.minimum(start + TOKENS, end - 1) // PAGE_SIZE)
        else:
            offsets = token_offsets(table, positions, is_held, page_stride, token_stride, PAGE_SIZE)
        key_tile = load_rows(keys, offsets, is_held, lanes, WIDTH, WIDTH_BLOCK)
        value_tile = load_rows(values, offsets, is_held, lanes, WIDTH, WIDTH_BLOCK)
        key_tile, value_tile = key_tile.to(queries.dtype), value_tile.to(queries.dtype)
        scores = tl.where(is_held[:, None], score(key_tile, queries), -float("inf"))
        top, totals, mixed = turned_step(scores, scale, value_tile, top, totals, mixed)
    return top, total * tl.exp2(before - top) + tl.sum(totals, 0), mixed


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
    split_mixed, split_totals, cells, stride, count, is_head, lanes,
    GROUP_BLOCK: tl.constexpr, WIDTH: tl.constexpr, WIDTH_BLOCK: tl.constexpr, MERGED_TOGETHER: tl.constexpr,
):  # fmt: skip
    """Splits of one row for the heads whose first ones lie at `cells`, some at a time, in order; the logarithm of their
    total with them."""
    top = tl.full([GROUP_BLOCK], LOWEST, tl.float32)
    total = tl.zeros([GROUP_BLOCK], tl.float32)
    mixed = tl.zeros([GROUP_BLOCK, WIDTH_BLOCK], tl.float32)
    for start in range(0, count, MERGED_TOGETHER):
        splits = start + tl.arange(0, MERGED_TOGETHER)
        is_cell = (splits < count)[:, None] & is_head[None, :]
        places = splits[:, None] * stride + cells[None, :]
        log_totals = tl.load(split_totals + places, mask=is_cell, other=-float("inf"), cache_modifier=".cg")
        parts = tl.load(
            split_mixed + places[:, :, None] * WIDTH + lanes[None, None, :],
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
    some = tl.where(is_head, total, 1.0)
    return mixed * (1.0 / some)[:, None], top + tl.log2(some)


@triton.jit
def put_together(
    split_mixed, split_totals, shared_cells, num_shared, most_shared, cells, stride, count, most, shared_stride,
    is_line, lanes, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Some lines, each of which has pieces that it shares and splits of its own, in order. Others wrote them."""
    top = tl.full([cells.shape[0]], LOWEST, tl.float32)
    total = tl.zeros([cells.shape[0]], tl.float32)
    mixed = tl.zeros([cells.shape[0], BLOCK], tl.float32)
    top, total, mixed = take_splits(
        split_mixed, split_totals, shared_cells, shared_stride, num_shared, most_shared, is_line, lanes, top, total,
        mixed, WIDTH
    )  # fmt: skip
    top, total, mixed = take_splits(
        split_mixed, split_totals, cells, stride, count, most, is_line, lanes, top, total, mixed, WIDTH
    )
    return mixed * (1.0 / tl.where(total > 0, total, 1.0))[:, None]
