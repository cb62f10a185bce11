"""Causal attention of many tokens a row over pages: prompts, their chunks, and rows of one token among them.

One program takes some tokens of one row with all the query heads of one key/value head. Programs find their rows on the
device: the grid follows from the shapes alone. A row of one token is right here too, but it costs a whole tile: many of
them belong to decode_attention.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from pagoda.kernels.cuda.launch import block_of
from pagoda.kernels.cuda.quick_launch import Launch, quick
from pagoda.kernels.cuda.tiles import (
    LOG2_E,
    LOWEST,
    PageTiles,
    as_multiplied,
    find_owner,
    load_rows,
    page_row,
    pages_are_paired,
    score,
    softmax_step,
    token_offsets,
)

# Starts of rows that are looked through together.
ROWS_TOGETHER = 256
# Enough to fill the device four times over, two a multiprocessor.
MANY_PROGRAMS = 1024
BLOCK_TOKENS = 64


@dataclass(frozen=True)
class PrefillTile:
    """Lines of queries (a token times a head) and tokens of keys that a program multiplies, and how it is run."""

    lines: int
    block_tokens: int
    num_warps: int
    num_stages: int
    most_registers: int | None = None


def prefill_tile(longest: int, num_lines: int, is_light: bool, of_bytes: bool = False) -> PrefillTile:
    """The best of benchmarks/gpu/kernels.py on an H200, by the lines of the longest row and of all key/value heads.

    Lines for many programs are taken 128 at a time, with so few registers that a multiprocessor has two programs of two
    groups of warps each: more of them multiply while others are at their softmax.
    """
    if is_light and longest >= 128 and num_lines >= 128 * MANY_PROGRAMS:
        return PrefillTile(128, BLOCK_TOKENS, 8, 2, most_registers=128)
    return PrefillTile(min(64, max(16, block_of(longest))), BLOCK_TOKENS, 4, 3, 168 if of_bytes else None)


def prefill_attention(
    out: torch.Tensor,
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    page_table: torch.Tensor,
    row_starts: torch.Tensor,
    context_lens: torch.Tensor,
    max_new: int,
    scale: float,
    window: int,
    tile: PrefillTile | None = None,
    page_tiles: PageTiles | None = None,
) -> Launch | None:
    """out, q: [T, H, E]; row r owns the tokens [row_starts[r], row_starts[r + 1]), the last of its context_lens[r].

    The keys and values of the new tokens already lie in the pages. No row has more than `max_new` new tokens; it
    chooses the size of a tile. Tokens from row_starts[R] on are padding and left alone. With `page_tiles` the
    device's copy engine fetches keys and values wherever a tile is full. What is given back may be launched again on
    other pages that lie alike.
    """
    assert pages_are_paired(k_pages, v_pages), "keys and values must lie alike, with a head's numbers side by side"
    assert q.stride(2) == 1 and out.stride(2) == 1 and page_table.stride(1) == 1
    num_tokens, num_heads, head_dim = q.shape
    _, page_size, num_kv_heads, _ = k_pages.shape
    num_rows = context_lens.shape[0]
    group = num_heads // num_kv_heads
    group_block = block_of(group)
    num_lines = num_tokens * group_block * num_kv_heads
    is_light = page_tiles is not None and page_tiles.are_light(BLOCK_TOKENS)
    of_bytes = page_tiles is not None and page_tiles.are_bytes(BLOCK_TOKENS)
    tile = tile or prefill_tile(max_new * group_block, num_lines, is_light, of_bytes)
    tiles = None if page_tiles is None else page_tiles.of(tile.block_tokens)
    tokens_in_tile = max(tile.lines, group_block) // group_block
    launch: Launch | None = _prefill[(num_kv_heads, num_tokens // tokens_in_tile + num_rows)](
        out,
        q,
        k_pages,
        v_pages,
        page_table,
        row_starts,
        context_lens,
        num_rows,
        scale * LOG2_E,
        window,
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
        TOKENS=tokens_in_tile,
        WIDTH=head_dim,
        WIDTH_BLOCK=max(16, block_of(head_dim)),
        PAGE_SIZE=page_size,
        BLOCK_TOKENS=tile.block_tokens,
        ROWS_TOGETHER=ROWS_TOGETHER,
        WHOLE=tiles is not None,
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
        maxnreg=tile.most_registers,
    )
    return launch


@quick
@triton.jit(do_not_specialize=["window", "num_rows"])
def _prefill(
    out,
    q,
    k_pages,
    v_pages,
    page_table,
    row_starts,
    context_lens,
    num_rows,
    scale,
    window,
    out_token,
    out_head,
    q_token,
    q_head,
    page_stride,
    token_stride,
    kv_head_stride,
    table_row,
    k_tiles,
    v_tiles,
    GROUP: tl.constexpr,
    GROUP_BLOCK: tl.constexpr,
    TOKENS: tl.constexpr,
    WIDTH: tl.constexpr,
    WIDTH_BLOCK: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr,
    ROWS_TOGETHER: tl.constexpr,
    WHOLE: tl.constexpr,
):
    kv_head = tl.program_id(0)
    # The last tiles of a prompt see the most keys: they start first, and the short ones fill the gaps at the end.
    tile = tl.num_programs(1) - 1 - tl.program_id(1)
    row = find_owner(row_starts, num_rows, tile, TOKENS, ROWS_TOGETHER)
    row_start, row_end = tl.load(row_starts + row), tl.load(row_starts + row + 1)
    num_new = row_end - row_start
    first_new = (tile - (row_start // TOKENS + row)) * TOKENS
    if first_new >= num_new:
        return
    context_len = tl.load(context_lens + row)
    num_before = context_len - num_new

    # Line i of the tile is head i % GROUP_BLOCK of token i // GROUP_BLOCK.
    lines = tl.arange(0, TOKENS * GROUP_BLOCK)
    lanes = tl.arange(0, WIDTH_BLOCK)
    new_tokens, heads = first_new + lines // GROUP_BLOCK, lines % GROUP_BLOCK
    is_line = (new_tokens < num_new) & (heads < GROUP)
    tokens = (row_start + new_tokens).to(tl.int64)
    head_numbers = kv_head * GROUP + heads
    query_offsets = tokens * q_token + head_numbers * q_head
    queries = as_multiplied(load_rows(q, query_offsets, is_line, lanes, WIDTH, WIDTH_BLOCK), k_pages)

    # A line sees the positions [first_seen, last_seen]; every line sees all of [all_from, all_until), and none sees any
    # outside of [first_held, last_token]. Pages of earlier ones may be another's, or none.
    last_seen = num_before + new_tokens
    first_seen = tl.where(window > 0, tl.maximum(last_seen - window + 1, 0), 0)
    first_token = num_before + first_new
    last_token = num_before + tl.minimum(first_new + TOKENS, num_new) - 1
    first_held = tl.where(window > 0, tl.maximum(first_token - window + 1, 0), 0)
    begin = first_held // BLOCK_TOKENS * BLOCK_TOKENS
    all_from = tl.where(window > 0, tl.maximum(last_token - window + 1, 0), 0)
    # Tiles of keys begin at `begin`; those in the middle need no mask.
    masked_until = tl.minimum(begin + tl.cdiv(all_from - begin, BLOCK_TOKENS) * BLOCK_TOKENS, last_token + 1)
    all_until = masked_until + tl.maximum(first_token + 1 - masked_until, 0) // BLOCK_TOKENS * BLOCK_TOKENS

    table = page_table + row.to(tl.int64) * table_row
    keys, values = k_pages + kv_head * kv_head_stride, v_pages + kv_head * kv_head_stride
    top = tl.full([TOKENS * GROUP_BLOCK], LOWEST, tl.float32)
    total = tl.zeros([TOKENS * GROUP_BLOCK], tl.float32)
    mixed = tl.zeros([TOKENS * GROUP_BLOCK, WIDTH_BLOCK], tl.float32)
    if masked_until > begin:
        top, total, mixed = _take_tiles(
            queries, keys, values, table, k_tiles, v_tiles, kv_head, begin, masked_until, first_held, last_token,
            first_seen, last_seen, scale, page_stride, token_stride, lanes, top, total, mixed,
            WIDTH, WIDTH_BLOCK, PAGE_SIZE, BLOCK_TOKENS, WHOLE, True
        )  # fmt: skip
    top, total, mixed = _take_tiles(
        queries, keys, values, table, k_tiles, v_tiles, kv_head, masked_until, all_until, first_held, last_token,
        first_seen, last_seen, scale, page_stride, token_stride, lanes, top, total, mixed,
        WIDTH, WIDTH_BLOCK, PAGE_SIZE, BLOCK_TOKENS, WHOLE, False
    )  # fmt: skip
    top, total, mixed = _take_tiles(
        queries, keys, values, table, k_tiles, v_tiles, kv_head, all_until, last_token + 1, first_held, last_token,
        first_seen, last_seen, scale, page_stride, token_stride, lanes, top, total, mixed,
        WIDTH, WIDTH_BLOCK, PAGE_SIZE, BLOCK_TOKENS, WHOLE, True
    )  # fmt: skip
    mixed *= (1.0 / total)[:, None]
    targets = (tokens * out_token + head_numbers * out_head)[:, None] + lanes[None, :]
    tl.store(out + targets, mixed.to(out.dtype.element_ty), mask=is_line[:, None] & (lanes < WIDTH)[None, :])


@triton.jit
def _take_tiles(
    queries, keys, values, table, k_tiles, v_tiles, kv_head, begin, end, first_held, last_token,
    first_seen, last_seen, scale, page_stride, token_stride, lanes, top, total, mixed,
    WIDTH: tl.constexpr, WIDTH_BLOCK: tl.constexpr, PAGE_SIZE: tl.constexpr, BLOCK_TOKENS: tl.constexpr,
    WHOLE: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    first = 0
    if WHOLE and not MASKED:
        first = page_row(table, tl.minimum(begin, last_token), PAGE_SIZE)
    for start in range(begin, end, BLOCK_TOKENS):
        positions = start + tl.arange(0, BLOCK_TOKENS)
        if WHOLE and not MASKED:
            key_tile = k_tiles.load([first, kv_head * WIDTH])
            value_tile = v_tiles.load([first, kv_head * WIDTH])
            # A tile ahead, so that tiles themselves can be asked for earlier.
            first = page_row(table, tl.minimum(start + BLOCK_TOKENS, last_token), PAGE_SIZE)
        else:
            is_held = tl.full([BLOCK_TOKENS], True, tl.int1)
            if MASKED:
                is_held = (positions >= first_held) & (positions <= last_token)
            offsets = token_offsets(table, positions, is_held, page_stride, token_stride, PAGE_SIZE)
            key_tile = load_rows(keys, offsets, is_held, lanes, WIDTH, WIDTH_BLOCK)
            value_tile = load_rows(values, offsets, is_held, lanes, WIDTH, WIDTH_BLOCK)
        scores = score(queries, key_tile)
        if MASKED:
            is_seen = (positions[None, :] >= first_seen[:, None]) & (positions[None, :] <= last_seen[:, None])
            scores = tl.where(is_seen, scores, -float("inf"))
        top, total, mixed = softmax_step(scores, scale, value_tile.to(queries.dtype), top, total, mixed)
    return top, total, mixed
