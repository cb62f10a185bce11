"""Decode attention of rows that begin with the same pages: requests under one node of the prefix tree.

The pages that a group of rows shares are read once for a tile of its queries, many rows by all heads of a key/value
head, instead of once a row. What comes out lies in the workspace of decode_attention behind the splits of the plan;
that kernel sees to the rest of every row at the same time: one multiplies while the other reads. Whichever finishes the
last of a row puts it together.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from pagoda.kernels.cuda.decode_attention import (
    BYTE_TILE,
    FEW_TILE,
    MANY_TILE,
    SHARED_UNIT,
    DecodeTile,
    DecodeWorkspace,
    decode_attention,
    parts_of,
    put_together,
)
from pagoda.kernels.cuda.decode_plan import DecodePlan
from pagoda.kernels.cuda.launch import block_of
from pagoda.kernels.cuda.overlap import EARLY_LAUNCH, LAUNCHES_EARLY, launch_dependents, wait_for_earlier
from pagoda.kernels.cuda.quick_launch import Launch, quick
from pagoda.kernels.cuda.tiles import (
    LOG2_E,
    LOWEST,
    PageTiles,
    as_multiplied,
    cut_shared,
    find_owner,
    load_rows,
    page_row,
    pages_are_paired,
    score,
    softmax_step,
    token_offsets,
)

GROUPS_TOGETHER = 64
BLOCK_TOKENS = 64
# One for each multiprocessor: what that has left is for the kernel which reads the rest of the rows meanwhile.
PROGRAMS_IN_ALL = 132
FEWEST_ROWS, FEW_ROWS, MANY_ROWS = 8, 64, 128
LINES = 64


@dataclass(frozen=True)
class SharedTile:
    """Lines of queries (a row times a head) and tokens that a program multiplies, and how it is run.

    With `most_registers` a thread gives up some, so that more programs of the kernel beside this one fit.
    """

    lines: int
    block_tokens: int
    num_warps: int
    num_stages: int
    most_registers: int | None = None


def num_shared_slots(max_rows: int, num_heads: int, num_kv_heads: int) -> int:
    """The pieces of all rows in any step: several for each where a single tile holds them all, else one."""
    rows_in_tile = max(1, LINES // block_of(num_heads // num_kv_heads))
    return max(max_rows, PROGRAMS_IN_ALL * rows_in_tile // num_kv_heads)


def tiles_beside(num_rows: int, is_light: bool, of_bytes: bool = False) -> tuple[SharedTile, DecodeTile]:
    """Of this kernel and of the one beside it: the best on an H200, many rows within a model, few in kernels.py.

    Many rows wait for what each reads of its own. A quarter of a multiprocessor has 16,384 registers: next to a warp of
    168 a thread there is room for two that read, also of 168, and for one only next to 227. Few rows wait for what they
    share, and leave room for a tile more on its way; where that is bytes, they wait for its numbers to be made wider,
    which twice the warps do sooner.
    """
    if num_rows > MANY_ROWS and is_light:
        return SharedTile(LINES, BLOCK_TOKENS, 4, 3, most_registers=168), MANY_TILE
    beside = FEW_TILE
    if num_rows > FEWEST_ROWS:
        beside = BYTE_TILE if of_bytes else DecodeTile(32, 1, 4, tail_tokens=32, in_pages=False, takes_whole=False)
    if of_bytes and num_rows <= FEW_ROWS:
        return SharedTile(LINES, BLOCK_TOKENS, 8, 3), beside
    return SharedTile(LINES, BLOCK_TOKENS, 4, 4 if num_rows <= FEW_ROWS else 3), beside


@dataclass(frozen=True, eq=False)
class SharedRows:
    """Which rows begin alike. Group g has the rows members[starts[g]:starts[g + 1]] and may be empty.

    The first shared_lens[r] tokens of row r, whole pages of its table, are those of its group; 0 for a row of no group.
    At least one more token follows them.
    """

    shared_lens: torch.Tensor  # [R] int32
    members: torch.Tensor  # [N] int32
    starts: torch.Tensor  # [G + 1] int32


def shared_attention(
    out: torch.Tensor,
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    page_table: torch.Tensor,
    plan: DecodePlan,
    shared: SharedRows,
    scale: float,
    workspace: DecodeWorkspace,
    pieces: int | None = None,
    tile: SharedTile | None = None,
    tile_beside: DecodeTile | None = None,
    page_tiles: PageTiles | None = None,
) -> list[Launch | None]:
    """As decode_attention without a window, by a plan that knows of what is shared.

    What a group shares is cut into at most so many `pieces`. With `page_tiles` the device's copy engine fetches keys
    and values. What is given back may be launched again on other pages that lie alike.
    """
    assert pages_are_paired(k_pages, v_pages), "keys and values must lie alike, with a head's numbers side by side"
    num_rows, num_heads, head_dim = q.shape
    _, page_size, num_kv_heads, _ = k_pages.shape
    group = num_heads // num_kv_heads
    group_block = block_of(group)
    is_light = page_tiles is not None and page_tiles.are_light(BLOCK_TOKENS)
    of_bytes = page_tiles is not None and page_tiles.are_bytes(BLOCK_TOKENS)
    best = tiles_beside(num_rows, is_light, of_bytes)
    tile, tile_beside = tile or best[0], tile_beside or best[1]
    tiles = None if page_tiles is None else page_tiles.of(tile.block_tokens)
    rows_in_tile = max(1, tile.lines // group_block)
    num_tiles = len(shared.members) // rows_in_tile + len(shared.starts) - 1
    if pieces is None:
        pieces = max(1, PROGRAMS_IN_ALL // (num_kv_heads * triton.cdiv(num_rows, rows_in_tile)))
    assert num_rows * pieces <= workspace.num_shared, f"room for {workspace.num_shared} pieces"
    together: Launch | None = _shared[(num_kv_heads, num_tiles, pieces)](
        out,
        q,
        k_pages,
        v_pages,
        page_table,
        plan.rows,
        shared.shared_lens,
        shared.members,
        shared.starts,
        len(shared.starts) - 1,
        workspace.mixed,
        workspace.log_totals,
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
        None if tiles is None else tiles.keys,
        None if tiles is None else tiles.values,
        GROUP=group,
        GROUP_BLOCK=group_block,
        ROWS=rows_in_tile,
        WIDTH=head_dim,
        WIDTH_BLOCK=max(16, block_of(head_dim)),
        PAGE_SIZE=page_size,
        UNIT=SHARED_UNIT,
        BLOCK_TOKENS=tile.block_tokens,
        GROUPS_TOGETHER=GROUPS_TOGETHER,
        WHOLE=tiles is not None,
        EARLY=LAUNCHES_EARLY,
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
        maxnreg=tile.most_registers,
        **EARLY_LAUNCH,
    )
    apart = decode_attention(
        out,
        q,
        k_pages,
        v_pages,
        page_table,
        plan,
        scale,
        workspace,
        shared_lens=shared.shared_lens,
        shared_pieces=pieces,
        tile=tile_beside,
        page_tiles=page_tiles,
    )
    return [together, apart]


@quick
@triton.jit(do_not_specialize=["num_groups", "first_shared"])
def _shared(
    out,
    q,
    k_pages,
    v_pages,
    page_table,
    plan_rows,
    shared_lens,
    members,
    starts,
    num_groups,
    split_mixed,
    split_totals,
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
    k_tiles,
    v_tiles,
    GROUP: tl.constexpr,
    GROUP_BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    WIDTH_BLOCK: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    UNIT: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr,
    GROUPS_TOGETHER: tl.constexpr,
    WHOLE: tl.constexpr,
    EARLY: tl.constexpr,
):
    wait_for_earlier(EARLY)
    launch_dependents(EARLY)  # not before: the next kernel reads what earlier ones wrote, and does not wait for that
    kv_head, tile, piece = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    num_kv_heads = tl.num_programs(0)
    owner = find_owner(starts, num_groups, tile, ROWS, GROUPS_TOGETHER)
    start, end = tl.load(starts + owner), tl.load(starts + owner + 1)
    first_member = start + (tile - (start // ROWS + owner)) * ROWS
    if first_member >= end:
        return
    leader = tl.load(members + start)
    shared_len = tl.load(shared_lens + leader)
    num_pieces, piece_len = cut_shared(shared_len, tl.num_programs(2), UNIT)
    if piece >= num_pieces:
        return

    # Line i of the tile is head i % GROUP_BLOCK of the member i // GROUP_BLOCK.
    lines = tl.arange(0, ROWS * GROUP_BLOCK)
    lanes = tl.arange(0, WIDTH_BLOCK)
    own_members, heads = first_member + lines // GROUP_BLOCK, lines % GROUP_BLOCK
    is_line = (own_members < end) & (heads < GROUP)
    rows = tl.load(members + own_members, mask=own_members < end, other=0)
    head_numbers = kv_head * GROUP + heads
    query_offsets = rows.to(tl.int64) * q_row + head_numbers * q_head
    queries = as_multiplied(load_rows(q, query_offsets, is_line, lanes, WIDTH, WIDTH_BLOCK), k_pages)

    table = page_table + leader.to(tl.int64) * table_row
    keys, values = k_pages + kv_head * kv_head_stride, v_pages + kv_head * kv_head_stride
    begin = piece * piece_len
    piece_end = tl.minimum(begin + piece_len, shared_len)
    top = tl.full([ROWS * GROUP_BLOCK], LOWEST, tl.float32)
    total = tl.zeros([ROWS * GROUP_BLOCK], tl.float32)
    mixed = tl.zeros([ROWS * GROUP_BLOCK, WIDTH_BLOCK], tl.float32)
    first = page_row(table, begin, PAGE_SIZE) if WHOLE else 0
    for block in range(begin, piece_end, BLOCK_TOKENS):
        if WHOLE:  # what is shared are whole pages
            scores = score(queries, k_tiles.load([first, kv_head * WIDTH]))
            value_tile = v_tiles.load([first, kv_head * WIDTH])
            # A tile ahead, so that tiles themselves can be asked for earlier.
            first = page_row(table, tl.minimum(block + BLOCK_TOKENS, piece_end - 1), PAGE_SIZE)
        else:
            positions = block + tl.arange(0, BLOCK_TOKENS)
            is_held = positions < piece_end
            offsets = token_offsets(table, positions, is_held, page_stride, token_stride, PAGE_SIZE)
            key_tile = load_rows(keys, offsets, is_held, lanes, WIDTH, WIDTH_BLOCK)
            scores = tl.where(is_held[None, :], score(queries, key_tile), -float("inf"))
            value_tile = load_rows(values, offsets, is_held, lanes, WIDTH, WIDTH_BLOCK)
        top, total, mixed = softmax_step(scores, scale, value_tile.to(queries.dtype), top, total, mixed)
    shared_cells = (first_shared + rows * tl.num_programs(2)) * num_kv_heads * GROUP + head_numbers
    cells = shared_cells + piece * num_kv_heads * GROUP
    is_number = is_line[:, None] & (lanes < WIDTH)[None, :]
    tl.store(split_mixed + cells[:, None] * WIDTH + lanes[None, :], mixed * (1.0 / total)[:, None], mask=is_number)
    tl.store(split_totals + cells, top + tl.log2(total), mask=is_line)

    # As in decode_attention: all threads have stored before some of them say so.
    tl.debug_barrier()
    numbers = first_member + tl.arange(0, ROWS)
    own_rows = tl.load(members + numbers, mask=numbers < end, other=0)
    num_parts, _stride = parts_of(tl.load(plan_rows + own_rows * 2 + 1, mask=numbers < end, other=1))
    counters = rows_done + own_rows * num_kv_heads + kv_head
    before = tl.atomic_add(counters, 1, mask=numbers < end, sem="acq_rel")
    is_last = (numbers < end) & (before + 1 == num_pieces + num_parts)
    most_parts = tl.max(tl.where(is_last, num_parts, 0))
    if most_parts > 0:
        tl.store(counters, 0, mask=is_last)
        by_line = tl.broadcast_to(tl.where(is_last, num_parts, 0)[:, None], [ROWS, GROUP_BLOCK])
        line_parts = tl.reshape(by_line, [ROWS * GROUP_BLOCK])
        is_ended = is_line & (line_parts > 0)
        first_slots = tl.load(plan_rows + rows * 2, mask=is_ended, other=0)
        _most, part_stride = parts_of(tl.load(plan_rows + rows * 2 + 1, mask=is_ended, other=1))
        merged = put_together(
            split_mixed, split_totals, shared_cells, num_pieces, num_pieces,
            first_slots * num_kv_heads * GROUP + head_numbers, part_stride * num_kv_heads * GROUP, line_parts,
            most_parts, num_kv_heads * GROUP, is_ended, lanes, WIDTH, WIDTH_BLOCK
        )  # fmt: skip
        places = (rows.to(tl.int64) * out_row + head_numbers * out_head)[:, None] + lanes[None, :]
        tl.store(out + places, merged.to(out.dtype.element_ty), mask=is_number & is_ended[:, None])
