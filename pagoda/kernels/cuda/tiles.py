"""What the attention kernels share: tiles of keys and values out of pages, and softmax over one tile after another.

Scores are kept in powers of two (the scale already holds log2 e), because the device computes exp2 in one instruction.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

LOG2_E = math.log2(math.e)
# Where softmax starts before it has seen a score. Finite, so that a row which sees nothing of a tile stays a number.
LOWEST = tl.constexpr(-1e30)
# What stands in the rows of a product of the tensor cores: they take no fewer.
FEWEST_LINES = 16
LARGEST_FLOAT16 = tl.constexpr(65504.0)
INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)


def pages_are_paired(k_pages, v_pages) -> bool:
    """Whether one set of offsets finds both the keys and the values, their last axis side by side."""
    return k_pages.shape == v_pages.shape and k_pages.stride() == v_pages.stride() and k_pages.stride(3) == 1


class Tiles(NamedTuple):
    """Keys and values of one head in tiles of so many tokens, none of them in two pages."""

    keys: TensorDescriptor
    values: TensorDescriptor
    value_pairs: TensorDescriptor | None
    """Values of float8, two in a number of sixteen bits."""


class PageTiles:
    """Pages as the device's copy engine takes them, in tiles of any size that was asked for."""

    def __init__(self, k_pages: torch.Tensor, v_pages: torch.Tensor) -> None:
        self._pages = k_pages, v_pages
        self._by_size: dict[int, Tiles | None] = {}

    def of(self, block_tokens: int) -> Tiles | None:
        """None where heads have a width that the engine does not take, or pages do not consist of such tiles."""
        if block_tokens not in self._by_size:
            self._by_size[block_tokens] = _tiles(*self._pages, block_tokens)
        return self._by_size[block_tokens]

    def are_light(self, block_tokens: int) -> bool:
        """There are such tiles, and a program that sums up heads of their width and type has registers to give up, so
        that others find room."""
        keys = self._pages[0]
        return self.of(block_tokens) is not None and keys.shape[-1] <= 128 and keys.element_size() == 2

    def are_bytes(self, block_tokens: int) -> bool:
        """There are such tiles, of numbers of eight bits."""
        return self.of(block_tokens) is not None and self._pages[0].element_size() == 1

    def in_place_of(self, others: PageTiles) -> dict[int, TensorDescriptor]:
        """By what stands in a launch for tiles of other pages that lie alike: what would stand there for these."""
        found: dict[int, TensorDescriptor] = {}
        for block_tokens, old in others._by_size.items():
            new = self.of(block_tokens)
            if old is not None and new is not None:
                found |= {id(one): other for one, other in zip(old, new, strict=True) if other is not None}
        return found


def _tiles(k_pages: torch.Tensor, v_pages: torch.Tensor, block_tokens: int) -> Tiles | None:
    num_pages, page_size, num_heads, width = k_pages.shape
    if width & (width - 1) or width < 16 or page_size % block_tokens or not k_pages.is_contiguous():
        return None
    shape, strides = [num_pages * page_size, num_heads * width], [num_heads * width, 1]
    keys, values = (TensorDescriptor(x, shape, strides, [block_tokens, width]) for x in (k_pages, v_pages))
    pairs = None
    if v_pages.dtype == torch.float8_e4m3fn and width >= 2 * FEWEST_LINES:
        shape, strides = [num_pages * page_size, num_heads * width // 2], [num_heads * width // 2, 1]
        pairs = TensorDescriptor(v_pages.view(torch.int16), shape, strides, [block_tokens, width // 2])
    return Tiles(keys, values, pairs)


@triton.jit
def page_row(table, position, PAGE_SIZE: tl.constexpr):
    """The row of the pages, taken as one list of tokens, where the token at this position of a row lies."""
    return tl.load(table + position // PAGE_SIZE) * PAGE_SIZE + position % PAGE_SIZE


@triton.jit
def find_owner(starts, num_owners, tile, SIZE: tl.constexpr, TOGETHER: tl.constexpr):
    """The row or group that a tile of SIZE items belongs to, where owner o has the items [starts[o], starts[o + 1]).

    Its tiles begin at starts[o] // SIZE + o: ascending and never too few, so a grid of items // SIZE + owners serves.
    """
    found = 0
    for start in range(0, num_owners, TOGETHER):
        owners = start + tl.arange(0, TOGETHER)
        first_tiles = tl.load(starts + owners, mask=owners < num_owners, other=0) // SIZE + owners
        found += tl.sum(((first_tiles <= tile) & (owners < num_owners)).to(tl.int32))
    return found - 1


@triton.jit
def token_offsets(table, positions, is_held, page_stride, token_stride, PAGE_SIZE: tl.constexpr):
    """Where the tokens at these positions of a row begin, one offset each."""
    pages = tl.load(table + positions // PAGE_SIZE, mask=is_held, other=0)
    return pages.to(tl.int64) * page_stride + (positions % PAGE_SIZE) * token_stride


@triton.jit
def cut_shared(shared_len, most_pieces, UNIT: tl.constexpr):
    """Into how many pieces tokens that rows share are cut, at most so many, and the length of each but the last."""
    piece_len = tl.cdiv(tl.cdiv(shared_len, UNIT), most_pieces) * UNIT
    return tl.cdiv(shared_len, tl.maximum(piece_len, 1)), piece_len


@triton.jit
def load_rows(base, offsets, is_held, lanes, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """[rows, BLOCK] numbers at base + offsets; zero where a row is not held and beyond the width."""
    mask = is_held[:, None]
    if WIDTH < BLOCK:
        mask = mask & (lanes < WIDTH)[None, :]
    return tl.load(base + offsets[:, None] + lanes[None, :], mask=mask, other=0.0)


@triton.jit
def product(x, y, total):
    """total + x @ y in float32; float32 inputs are not shortened on their way into the tensor cores."""
    if INTERPRETED:  # the interpreter would multiply the bits of bf16 as integers
        x, y = x.to(tl.float32), y.to(tl.float32)
    return tl.dot(x, y, total, input_precision="ieee")


@triton.jit
def as_multiplied(queries, pages):
    """Queries in the type that they and what pages hold are multiplied in: theirs, but bf16 by float8 in float16.

    One instruction makes two numbers of float16 of two of float8, and three more make them bf16. A query loses nothing
    but what is beyond the largest float16, which becomes the largest, and below the smallest.
    """
    if queries.dtype == tl.bfloat16 and pages.dtype.element_ty.primitive_bitwidth == 8:
        return tl.clamp(queries.to(tl.float32), -LARGEST_FLOAT16, LARGEST_FLOAT16).to(tl.float16)
    else:
        return queries


@triton.jit
def score(queries, keys):
    """[M, E] by [N, E] -> [M, N]"""
    total = tl.zeros([queries.shape[0], keys.shape[0]], tl.float32)
    return product(queries, tl.trans(keys.to(queries.dtype)), total)


@triton.jit
def take_split(part, log_total, top, total, mixed):
    """Take a finished split into a softmax over splits: its values mixed [M, E], and the logarithm of its total [M]."""
    new_top = tl.maximum(top, log_total)
    share, shrink = tl.exp2(log_total - new_top), tl.exp2(top - new_top)
    return new_top, total * shrink + share, mixed * shrink[:, None] + part * share[:, None]


@triton.jit
def take_splits(
    split_mixed, split_totals, cells, stride, count, most, is_line, lanes, top, total, mixed, WIDTH: tl.constexpr
):  # fmt: skip
    """Take some lines' finished splits in, in order: `count` of each line, `most` of any. Their first ones lie at
    `cells`; other programs wrote them."""
    for split in range(most):
        is_part = is_line & (tl.full([cells.shape[0]], split, tl.int32) < count)
        places = cells + split * stride
        log_totals = tl.load(split_totals + places, mask=is_part, other=-float("inf"), cache_modifier=".cg")
        parts = tl.load(
            split_mixed + places[:, None] * WIDTH + lanes[None, :],
            mask=is_part[:, None] & (lanes < WIDTH)[None, :],
            other=0.0,
            cache_modifier=".cg",
        )
        top, total, mixed = take_split(parts, log_totals, top, total, mixed)
    return top, total, mixed


@triton.jit
def softmax_step(scores, scale, values, top, total, mixed):
    """Take in one tile: scores [M, N] with -inf where hidden, values [N, E]; the state is [M], [M] and [M, E].

    The scale is positive. It comes last, where it costs no instruction of its own.
    """
    new_top = tl.maximum(top, tl.max(scores, 1) * scale)
    weights = tl.exp2(scores * scale - new_top[:, None])
    shrink = tl.exp2(top - new_top)
    total = total * shrink + tl.sum(weights, 1)
    mixed = product(weights.to(values.dtype), values, mixed * shrink[:, None])
    return new_top, total, mixed


@triton.jit
def turned_step(scores, scale, values, top, total, mixed):
    """The same with tokens above and lines beside each other: scores [N, M], values [N, E], mixed [E, M].

    The total is kept apart by token of a tile, [N, M]: to add it up takes threads that ask each other.
    """
    top, weights, shrink = _turned_weights(scores, scale, top)
    mixed = product(tl.trans(values), weights.to(values.dtype), mixed * shrink)
    return top, total * shrink + weights, mixed


@triton.jit
def turned_pair_step(scores, scale, pairs, top, total, lower, upper, KIND: tl.constexpr):
    """The same with values of float8 in pairs [N, E / 2], which are multiplied in another type: what is mixed of the
    lower numbers of each pair and of the upper ones [E / 2, M].

    So values are turned on their way from shared memory, two numbers at a time; a byte by itself is read by itself.
    """
    top, weights, shrink = _turned_weights(scores, scale, top)
    lower_values, upper_values = _apart(tl.trans(pairs))
    lower = product(lower_values.to(KIND), weights.to(KIND), lower * shrink)
    upper = product(upper_values.to(KIND), weights.to(KIND), upper * shrink)
    return top, total * shrink + weights, lower, upper


@triton.jit
def _turned_weights(scores, scale, top):
    new_top = tl.maximum(top, tl.max(scores, 0) * scale)
    weights = tl.exp2(scores * scale - new_top[None, :])
    return new_top, weights, tl.exp2(top - new_top)[None, :]


@triton.jit
def _apart(pairs):
    """The lower and the upper of two numbers of float8 in one of sixteen bits, in float16."""
    if INTERPRETED:  # it knows no instructions
        lower = pairs.to(tl.int8).to(tl.float8e4nv, bitcast=True).to(tl.float16)
        upper = (pairs >> 8).to(tl.int8).to(tl.float8e4nv, bitcast=True).to(tl.float16)
        return lower, upper
    else:
        return tl.inline_asm_elementwise(
            """{
            .reg .b32 apart;
            .reg .b16 lower, upper;
            prmt.b32 apart, $2, 0, 0x3120;
            mov.b32 {lower, upper}, apart;
            cvt.rn.f16x2.e4m3x2 $0, lower;
            cvt.rn.f16x2.e4m3x2 $1, upper;
            }""",
            "=r,=r,r",
            [pairs],
            dtype=(tl.float16, tl.float16),
            is_pure=True,
            pack=2,
        )
