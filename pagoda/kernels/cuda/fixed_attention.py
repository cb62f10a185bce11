"""Causal attention over pages in which a token has the same bits in a prompt, in any chunk of it, and when decoded:
that of the deterministic mode.

Every row goes through tiles of one shape. A context is cut at multiples of SPLIT_LEN positions, and of KEYS within,
whatever part of it is new. The splits are put together in order: by one program, or by the one that finishes last where
rows are few and splits many. What a token does not see adds exact zeros to its sums.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from pagoda.kernels.cuda.prefill_attention import ROWS_TOGETHER
from pagoda.kernels.cuda.tiles import (
    LOG2_E,
    LOWEST,
    as_multiplied,
    find_owner,
    load_rows,
    pages_are_paired,
    score,
    softmax_step,
    take_split,
    token_offsets,
)

SPLIT_LEN = 512
KEYS = 64
# Lines of queries, a token times a head: the fewest that the tensor cores take at their full rate. A row that decodes
# fills few of them, which costs less than reading its keys and values.
LINES = 64


@dataclass(frozen=True, eq=False)
class SplitWorkspace:
    """What the splits of a row leave for the program that finishes last. Serves one launch at a time.

    `num_done` counts the splits that are done, by row and key/value head; it is all zeros between launches.
    """

    mixed: torch.Tensor  # [rows, splits, H, E] float32
    log_totals: torch.Tensor  # [rows, splits, H] float32
    num_done: torch.Tensor  # [rows, K] int32


def split_workspace(
    num_rows: int, num_heads: int, num_kv_heads: int, head_dim: int, max_context: int, device: torch.device | str
) -> SplitWorkspace:
    """For up to `num_rows` rows of up to `max_context` tokens."""
    splits = triton.cdiv(max_context, SPLIT_LEN) + 1
    return SplitWorkspace(
        torch.empty((num_rows, splits, num_heads, head_dim), dtype=torch.float32, device=device),
        torch.empty((num_rows, splits, num_heads), dtype=torch.float32, device=device),
        torch.zeros((num_rows, num_kv_heads), dtype=torch.int32, device=device),
    )


def how_run(width_block: int, bytes_per_number: int) -> dict[str, int]:
    """Heads of more than 256 bytes need twice the registers, and more of the shared memory."""
    is_wide = width_block * bytes_per_number > 256
    return {"num_warps": 8, "num_stages": 2} if is_wide else {"num_warps": 4, "num_stages": 3}


def fixed_attention(
    out: torch.Tensor,
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    page_table: torch.Tensor,
    row_starts: torch.Tensor,
    context_lens: torch.Tensor,
    scale: float,
    window: int,
    workspace: SplitWorkspace | None = None,
    programs_per_row: int = 1,
) -> None:
    """out, q: [T, H, E]; row r owns the tokens [row_starts[r], row_starts[r + 1]), the last of its context_lens[r].

    The keys and values of the new tokens already lie in the pages. A row of an empty context is padding and gets zeros;
    tokens from row_starts[R] on are left alone. With a workspace every row has one token and `programs_per_row` times K
    programs share its splits. That does not change the result.
    """
    assert pages_are_paired(k_pages, v_pages), "keys and values must lie alike, with a head's numbers side by side"
    assert q.stride(2) == 1 and out.stride(2) == 1 and page_table.stride(1) == 1
    num_tokens, num_heads, head_dim = q.shape
    _, page_size, num_kv_heads, _ = k_pages.shape
    num_rows = len(context_lens)
    group = num_heads // num_kv_heads
    group_block = triton.next_power_of_2(group)
    tokens_in_tile = max(LINES, group_block) // group_block
    width_block = max(16, triton.next_power_of_2(head_dim))
    _fixed[(num_kv_heads, num_tokens // tokens_in_tile + num_rows, programs_per_row)](
        out,
        q,
        k_pages,
        v_pages,
        page_table,
        row_starts,
        context_lens,
        None if workspace is None else workspace.mixed,
        None if workspace is None else workspace.log_totals,
        None if workspace is None else workspace.num_done,
        0 if workspace is None else workspace.mixed.shape[1],
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
        GROUP=group,
        GROUP_BLOCK=group_block,
        TOKENS=tokens_in_tile,
        WIDTH=head_dim,
        WIDTH_BLOCK=width_block,
        PAGE_SIZE=page_size,
        SPLIT_LEN=SPLIT_LEN,
        KEYS=KEYS,
        ROWS_TOGETHER=ROWS_TOGETHER,
        APART=workspace is not None,
        **how_run(width_block, q.element_size()),
        enable_fp_fusion=False,  # a multiplication and a sum might be joined in one form and not in the other
    )


@triton.jit
def _take_split(
    queries, keys, values, table, split, first_held, last_held, first_seen, last_seen, scale, page_stride,
    token_stride, lanes, WIDTH: tl.constexpr, WIDTH_BLOCK: tl.constexpr, PAGE_SIZE: tl.constexpr,
    SPLIT_LEN: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """What a split gives by itself: values mixed, and the logarithm of the total; -inf for a line that sees nothing."""
    top = tl.full([queries.shape[0]], LOWEST, tl.float32)
    total = tl.zeros([queries.shape[0]], tl.float32)
    mixed = tl.zeros([queries.shape[0], WIDTH_BLOCK], tl.float32)
    begin = tl.maximum(split * SPLIT_LEN, first_held // KEYS * KEYS)
    for start in range(begin, tl.minimum((split + 1) * SPLIT_LEN, last_held + 1), KEYS):
        positions = start + tl.arange(0, KEYS)
        is_held = (positions >= first_held) & (positions <= last_held)
        offsets = token_offsets(table, positions, is_held, page_stride, token_stride, PAGE_SIZE)
        key_tile = load_rows(keys, offsets, is_held, lanes, WIDTH, WIDTH_BLOCK)
        value_tile = load_rows(values, offsets, is_held, lanes, WIDTH, WIDTH_BLOCK)
        is_seen = (positions[None, :] >= first_seen[:, None]) & (positions[None, :] <= last_seen[:, None])
        scores = tl.where(is_seen, score(queries, key_tile), -float("inf"))
        top, total, mixed = softmax_step(scores, scale, value_tile.to(queries.dtype), top, total, mixed)
    some = tl.where(total > 0.0, total, 1.0)
    return mixed / some[:, None], tl.where(total > 0.0, top + tl.log2(some), -float("inf"))


@triton.jit(do_not_specialize=["max_splits", "num_rows", "window"])
def _fixed(
    out,
    q,
    k_pages,
    v_pages,
    page_table,
    row_starts,
    context_lens,
    split_mixed,
    split_totals,
    num_done,
    max_splits,
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
    GROUP: tl.constexpr,
    GROUP_BLOCK: tl.constexpr,
    TOKENS: tl.constexpr,
    WIDTH: tl.constexpr,
    WIDTH_BLOCK: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    SPLIT_LEN: tl.constexpr,
    KEYS: tl.constexpr,
    ROWS_TOGETHER: tl.constexpr,
    APART: tl.constexpr,
):
    kv_head, num_kv_heads = tl.program_id(0), tl.num_programs(0)
    # The last tiles of a prompt see the most keys: they start first, and the short ones fill the gaps at the end.
    tile = tl.num_programs(1) - 1 - tl.program_id(1)
    row = find_owner(row_starts, num_rows, tile, TOKENS, ROWS_TOGETHER)
    row_start, row_end = tl.load(row_starts + row), tl.load(row_starts + row + 1)
    num_new = row_end - row_start
    first_new = (tile - (row_start // TOKENS + row)) * TOKENS
    if first_new >= num_new:
        return
    num_before = tl.load(context_lens + row) - num_new

    # Line i of the tile is head i % GROUP_BLOCK of token i // GROUP_BLOCK.
    lines = tl.arange(0, TOKENS * GROUP_BLOCK)
    lanes = tl.arange(0, WIDTH_BLOCK)
    new_tokens, heads = first_new + lines // GROUP_BLOCK, lines % GROUP_BLOCK
    is_line = (new_tokens < num_new) & (heads < GROUP)
    is_number = is_line[:, None] & (lanes < WIDTH)[None, :]
    tokens = (row_start + new_tokens).to(tl.int64)
    head_numbers = kv_head * GROUP + heads
    query_offsets = tokens * q_token + head_numbers * q_head
    queries = as_multiplied(load_rows(q, query_offsets, is_line, lanes, WIDTH, WIDTH_BLOCK), k_pages)

    # A line sees the positions [first_seen, last_seen]; no line sees one outside of [first_held, last_held].
    last_seen = num_before + new_tokens
    first_seen = tl.where(window > 0, tl.maximum(last_seen - window + 1, 0), 0)
    first_held = tl.where(window > 0, tl.maximum(num_before + first_new - window + 1, 0), 0)
    last_held = num_before + tl.minimum(first_new + TOKENS, num_new) - 1
    first_split = first_held // SPLIT_LEN
    num_splits = tl.maximum(last_held, 0) // SPLIT_LEN + 1 - first_split

    table = page_table + row.to(tl.int64) * table_row
    keys, values = k_pages + kv_head * kv_head_stride, v_pages + kv_head * kv_head_stride
    top = tl.full([TOKENS * GROUP_BLOCK], LOWEST, tl.float32)
    total = tl.zeros([TOKENS * GROUP_BLOCK], tl.float32)
    mixed = tl.zeros([TOKENS * GROUP_BLOCK, WIDTH_BLOCK], tl.float32)
    if APART:
        # Slots of the row's splits: [split, head].
        slots = row.to(tl.int64) * max_splits * num_kv_heads * GROUP + head_numbers
        program, num_programs = tl.program_id(2), tl.num_programs(2)
        if program >= num_splits:
            return
        for split in range(program, num_splits, num_programs):
            part, log_total = _take_split(
                queries, keys, values, table, first_split + split, first_held, last_held, first_seen, last_seen, scale,
                page_stride, token_stride, lanes, WIDTH, WIDTH_BLOCK, PAGE_SIZE, SPLIT_LEN, KEYS
            )  # fmt: skip
            own = slots + split * num_kv_heads * GROUP
            tl.store(split_mixed + own[:, None] * WIDTH + lanes[None, :], part, mask=is_number)
            tl.store(split_totals + own, log_total, mask=is_line)
        finished = (num_splits - program + num_programs - 1) // num_programs
        # All threads have stored before one of them says so; acq_rel makes the others' splits visible to the last.
        tl.debug_barrier()
        counter = num_done + row * num_kv_heads + kv_head
        before = tl.atomic_add(counter, finished, sem="acq_rel")
        if before + finished != num_splits:
            return
        tl.store(counter, 0)
        for split in range(num_splits):
            own = slots + split * num_kv_heads * GROUP
            cells = split_mixed + own[:, None] * WIDTH + lanes[None, :]
            part = tl.load(cells, mask=is_number, other=0.0, cache_modifier=".cg")
            log_total = tl.load(split_totals + own, mask=is_line, other=0.0, cache_modifier=".cg")
            top, total, mixed = take_split(part, log_total, top, total, mixed)
    else:
        for split in range(num_splits):
            part, log_total = _take_split(
                queries, keys, values, table, first_split + split, first_held, last_held, first_seen, last_seen, scale,
                page_stride, token_stride, lanes, WIDTH, WIDTH_BLOCK, PAGE_SIZE, SPLIT_LEN, KEYS
            )  # fmt: skip
            top, total, mixed = take_split(part, log_total, top, total, mixed)
    mixed = mixed / tl.where(total > 0.0, total, 1.0)[:, None]
    targets = (tokens * out_token + head_numbers * out_head)[:, None] + lanes[None, :]
    tl.store(out + targets, mixed.to(out.dtype.element_ty), mask=is_number)
