"""From the product of the input with query, key and value weights to queries and pages, in one pass.

Each head is normed where the model wants it, queries and keys are turned, queries go to a matrix of their own, keys and
values go straight into the pages.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any, ClassVar

import torch
import triton
import triton.language as tl

from pagoda.kernels.cuda.launch import block_of
from pagoda.kernels.cuda.overlap import EARLY_LAUNCH, LAUNCHES_EARLY, launch_dependents, wait_for_earlier
from pagoda.kernels.cuda.quick_launch import quick

MAX_HEADS = 8  # of one program


@dataclass(frozen=True, eq=False)
class HeadNorms:
    """Norms over the head width of queries and keys."""

    query: torch.Tensor
    key: torch.Tensor
    epsilon: float
    offset: float


@dataclass(frozen=True, eq=False)
class FreshHeads:
    """Queries, keys and values as the projection left them, for a kernel that norms and turns them itself."""

    NO_ARGUMENTS: ClassVar[tuple[None | int | float, ...]] = (None, 0, None, None, None, None, 0.0, 0.0)

    x: torch.Tensor
    """[R, (H + 2K) * E]: queries, keys, values"""
    cosines: torch.Tensor
    sines: torch.Tensor
    interleaved: bool
    norms: HeadNorms | None

    def arguments(self) -> tuple[Any, ...]:
        """As the kernel takes them: x, its row stride, cosines, sines, both norms, epsilon, offset."""
        norms = self.norms
        weights = (self.cosines, self.cosines, 0.0, 0.0)
        if norms is not None:
            weights = (norms.query, norms.key, norms.epsilon, norms.offset)
        return (self.x, self.x.stride(0), self.cosines, self.sines, *weights)


@triton.jit
def turned_heads(
    heads,
    is_head,
    lanes,
    position,
    cosines,
    sines,
    norm,
    epsilon,
    offset,
    WIDTH: tl.constexpr,
    HALF: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    NORMS: tl.constexpr,
):
    """The heads at these pointers [M], normed and turned to the position: [M, lanes] float32."""
    is_turned = lanes < 2 * HALF
    if INTERLEAVED:
        partners, angles, is_first = lanes ^ 1, lanes // 2, lanes % 2 == 0
    else:
        is_first = lanes < HALF
        partners, angles = tl.where(is_first, lanes + HALF, lanes - HALF), lanes % HALF
    partners = tl.where(is_turned, partners, lanes)
    mask = is_head[:, None] & (lanes < WIDTH)[None, :]
    x = tl.load(heads[:, None] + lanes[None, :], mask=mask, other=0.0).to(tl.float32)
    y = tl.load(heads[:, None] + partners[None, :], mask=mask, other=0.0).to(tl.float32)
    if NORMS:
        kind = heads.dtype.element_ty
        inverse = tl.rsqrt(tl.sum(x * x, 1) / WIDTH + epsilon)[:, None]
        own = tl.load(norm + lanes, mask=lanes < WIDTH, other=0.0).to(tl.float32) + offset
        others = tl.load(norm + partners, mask=lanes < WIDTH, other=0.0).to(tl.float32) + offset
        # Rounded as the single operators round.
        x = (x * inverse * own[None, :]).to(kind).to(tl.float32)
        y = (y * inverse * others[None, :]).to(kind).to(tl.float32)
    angles += position.to(tl.int64) * HALF
    cosine = tl.load(cosines + angles, mask=is_turned, other=1.0)
    sine = tl.load(sines + angles, mask=is_turned, other=0.0)
    sine = tl.where(is_first, -sine, sine)
    return x * cosine[None, :] + y * sine[None, :]


@quick
@triton.jit
def _rope_write_kernel(
    queries_out,
    key_pages,
    value_pages,
    x,
    x_stride,
    cosines,
    sines,
    query_norm,
    key_norm,
    positions,
    entries,
    context_lens,
    page_table,
    table_stride,
    epsilon,
    offset,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HALF: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    HEADS: tl.constexpr,
    HALF_BLOCK: tl.constexpr,
    REST_BLOCK: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    NORMS: tl.constexpr,
    EARLY: tl.constexpr,
):
    launch_dependents(EARLY)
    wait_for_earlier(EARLY)
    token = tl.program_id(0).to(tl.int64)
    first_head = tl.program_id(1) * HEADS
    entry = tl.load(entries + token)
    if tl.load(context_lens + entry) == 0:  # padding
        return
    position = tl.load(positions + token)
    heads = first_head + tl.arange(0, HEADS)
    pairs = tl.arange(0, HALF_BLOCK)
    if INTERLEAVED:
        first, second = 2 * pairs, 2 * pairs + 1
    else:
        first, second = pairs, pairs + HALF
    paired = (pairs < HALF)[None, :]
    source = x + token * x_stride + heads[:, None] * HEAD_DIM
    left = tl.load(source + first[None, :], mask=paired, other=0.0).to(tl.float32)
    right = tl.load(source + second[None, :], mask=paired, other=0.0).to(tl.float32)
    others = 2 * HALF + tl.arange(0, REST_BLOCK)
    unpaired = (others < HEAD_DIM)[None, :]
    rest = tl.load(source + others[None, :], mask=unpaired, other=0.0).to(tl.float32)

    is_query = first_head < NUM_HEADS
    is_key = (first_head >= NUM_HEADS) & (first_head < NUM_HEADS + NUM_KV_HEADS)
    is_value = first_head >= NUM_HEADS + NUM_KV_HEADS
    if NORMS:  # noqa: SIM102 - known when the kernel is built
        if not is_value:
            squares = tl.sum(left * left, axis=1) + tl.sum(right * right, axis=1) + tl.sum(rest * rest, axis=1)
            inverse = tl.rsqrt(squares / HEAD_DIM + epsilon)[:, None]
            weight = query_norm if is_query else key_norm
            left_weight = tl.load(weight + first, mask=pairs < HALF, other=0.0).to(tl.float32) + offset
            right_weight = tl.load(weight + second, mask=pairs < HALF, other=0.0).to(tl.float32) + offset
            rest_weight = tl.load(weight + others, mask=others < HEAD_DIM, other=0.0).to(tl.float32) + offset
            # Rounded as the single operators round.
            left = (left * inverse * left_weight[None, :]).to(queries_out.dtype.element_ty).to(tl.float32)
            right = (right * inverse * right_weight[None, :]).to(queries_out.dtype.element_ty).to(tl.float32)
            rest = rest * inverse * rest_weight[None, :]
    if not is_value:
        cosine = tl.load(cosines + position.to(tl.int64) * HALF + pairs, mask=pairs < HALF, other=0.0)[None, :]
        sine = tl.load(sines + position.to(tl.int64) * HALF + pairs, mask=pairs < HALF, other=0.0)[None, :]
        turned = left * cosine - right * sine
        right = right * cosine + left * sine
        left = turned

    if is_query:
        target = queries_out + (token * NUM_HEADS + heads[:, None]) * HEAD_DIM
        tl.store(target + first[None, :], left.to(queries_out.dtype.element_ty), mask=paired)
        tl.store(target + second[None, :], right.to(queries_out.dtype.element_ty), mask=paired)
        tl.store(target + others[None, :], rest.to(queries_out.dtype.element_ty), mask=unpaired)
    else:
        page = tl.load(page_table + entry * table_stride + position // PAGE_SIZE).to(tl.int64)
        place = (page * PAGE_SIZE + position % PAGE_SIZE) * NUM_KV_HEADS
        if is_key:
            cell = key_pages + (place + heads[:, None] - NUM_HEADS) * HEAD_DIM
        else:
            cell = value_pages + (place + heads[:, None] - NUM_HEADS - NUM_KV_HEADS) * HEAD_DIM
        tl.store(cell + first[None, :], left.to(key_pages.dtype.element_ty), mask=paired)
        tl.store(cell + second[None, :], right.to(key_pages.dtype.element_ty), mask=paired)
        tl.store(cell + others[None, :], rest.to(key_pages.dtype.element_ty), mask=unpaired)


def rope_write(
    queries_out: torch.Tensor,
    key_pages: torch.Tensor,
    value_pages: torch.Tensor,
    x: torch.Tensor,
    cosines: torch.Tensor,
    sines: torch.Tensor,
    interleaved: bool,
    norms: HeadNorms | None,
    positions: torch.Tensor,
    entries: torch.Tensor,
    context_lens: torch.Tensor,
    page_table: torch.Tensor,
) -> None:
    """x [T, (H + 2K) * E], queries first, then keys, then values -> queries_out [T, H, E] and the pages.

    Token t stands at positions[t] of entry entries[t]; an entry whose context is empty is padding. `cosines` and
    `sines` are [positions, rotary_dim / 2].
    """
    num_tokens, num_heads, head_dim = queries_out.shape
    num_kv_heads = key_pages.shape[2]
    half = cosines.shape[1]
    heads = gcd(gcd(num_heads, num_kv_heads), MAX_HEADS)
    launcher: Any = _rope_write_kernel[(num_tokens, (num_heads + 2 * num_kv_heads) // heads)]
    launcher(
        queries_out,
        key_pages,
        value_pages,
        x,
        x.stride(0),
        cosines,
        sines,
        cosines if norms is None else norms.query,
        cosines if norms is None else norms.key,
        positions,
        entries,
        context_lens,
        page_table,
        page_table.stride(0),
        0.0 if norms is None else norms.epsilon,
        0.0 if norms is None else norms.offset,
        NUM_HEADS=num_heads,
        NUM_KV_HEADS=num_kv_heads,
        HEAD_DIM=head_dim,
        HALF=half,
        PAGE_SIZE=key_pages.shape[1],
        HEADS=heads,
        HALF_BLOCK=block_of(half),
        REST_BLOCK=block_of(max(1, head_dim - 2 * half)),
        INTERLEAVED=interleaved,
        NORMS=norms is not None,
        EARLY=LAUNCHES_EARLY,
        num_warps=max(1, heads // 2),
        **EARLY_LAUNCH,
    )
