"""Weights of eight or four bits beside inputs in full: a product that reads a half or a quarter of the bytes.

Inputs are taken 128 at a time: the weights of an output for such a group share a scale. A word holds 32 bits of weights
that lie apart in their group by the words of a group.

One row is multiplied as the words are read. Its time would be that of making floats of weights, so whole numbers are
multiplied: the inputs of a group become numbers of sixteen bits, finer than the bf16 that they came in, and one
instruction takes two of them and two weights. For more rows the matrix is widened first, and multiplied as any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from pagoda.kernels.cuda.activation import activated
from pagoda.kernels.cuda.counting import NOWHERE
from pagoda.kernels.cuda.linear import Matrix
from pagoda.kernels.cuda.overlap import EARLY_LAUNCH, LAUNCHES_EARLY, launch_dependents, wait_for_earlier
from pagoda.kernels.cuda.quick_launch import quick
from pagoda.kernels.cuda.row_linear import RowPlan
from pagoda.kernels.cuda.small_linear import LinearWorkspace
from pagoda.kernels.cuda.tiles import INTERPRETED

NARROW_BITS = {"int8": 8, "int4": 4}
GROUP = 128
WORD_BITS = 32
WORDS_A_LOAD = 4  # that a thread takes in one instruction
WORDS_PREPARED = 256  # by a program
ROWS_AT_ONCE = 4096  # that are rounded together
# A group's largest number sets its scale, or a little less does: what that cuts off may cost less than coarser steps.
SHARES = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7)


def narrow_row_plan(num_out: int, num_words: int, bits: int, gated: bool) -> RowPlan:
    """Outputs and words that a program takes; the best of benchmarks/gpu/narrow.py on an H200."""
    if gated:
        return RowPlan(2, 128, 1)
    if num_words > 1024:
        return RowPlan(1, 512, 1) if bits == 4 else RowPlan(2, 512, 2)
    if num_out > 4096:
        return RowPlan(4, 256, 1) if bits == 4 else RowPlan(2, 256, 1)
    return RowPlan(2, 512, 2) if bits == 4 else RowPlan(4, 512, 4)


def empty_narrow(num_out: int, num_in: int, bits: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Words and scales of a matrix, not filled."""
    num_groups = triton.cdiv(num_in, GROUP)
    words = torch.empty((num_out, num_groups * GROUP * bits // WORD_BITS), dtype=torch.int32, device=device)
    return words, torch.empty((num_out, num_groups), dtype=torch.bfloat16, device=device)


def narrow_bytes(num_out: int, num_in: int, bits: int) -> int:
    num_groups = triton.cdiv(num_in, GROUP)
    return num_out * num_groups * (GROUP * bits // 8 + 2)


def narrow(dense: torch.Tensor, bits: int) -> tuple[torch.Tensor, torch.Tensor]:
    """[outputs, inputs] -> words, and a scale for each output and group [outputs, groups]."""
    num_out, num_in = dense.shape
    words, scales = empty_narrow(num_out, num_in, bits, dense.device)
    if dense.device == NOWHERE:
        return words, scales
    for first in range(0, num_out, ROWS_AT_ONCE):
        part = slice(first, first + ROWS_AT_ONCE)
        padded = torch.nn.functional.pad(dense[part].float(), (0, scales.shape[1] * GROUP - num_in))
        grouped = padded.view(len(padded), -1, GROUP)
        scales[part] = _best_scales(grouped, bits)
        words[part] = _pack(_rounded(grouped, scales[part].float(), bits), bits)
    return words, scales


def _rounded(grouped: torch.Tensor, scales: torch.Tensor, bits: int) -> torch.Tensor:
    most = (1 << (bits - 1)) - 1
    return (grouped / scales.unsqueeze(-1)).round_().clamp_(-most - 1, most)


def _best_scales(grouped: torch.Tensor, bits: int) -> torch.Tensor:
    """Of some shares of the largest number, the one whose steps leave the least square error."""
    tops = grouped.abs().amax(-1).clamp_(min=1e-12) / ((1 << (bits - 1)) - 1)
    best = torch.empty_like(tops)
    least = torch.full_like(tops, float("inf"))
    for share in SHARES if bits < 8 else SHARES[:1]:
        scales = (tops * share).bfloat16().float()
        errors = (_rounded(grouped, scales, bits) * scales.unsqueeze(-1) - grouped).square_().sum(-1)
        is_better = errors < least
        best = torch.where(is_better, scales, best)
        least = torch.where(is_better, errors, least)
    return best


def _pack(numbers: torch.Tensor, bits: int) -> torch.Tensor:
    """[outputs, groups, 128] whole numbers -> [outputs, words]"""
    per_word = WORD_BITS // bits
    numbers = (numbers.int() + (1 << (bits - 1))).view(*numbers.shape[:2], per_word, GROUP // per_word)
    words = numbers[:, :, 0].clone()
    for place in range(1, per_word):
        words |= numbers[:, :, place] << (bits * place)
    return words.flatten(1)


@dataclass(frozen=True, eq=False)
class NarrowMatrix(Matrix):
    """`numbers` are words, `scales` [outputs, groups]."""

    bits: int = 8
    num_in: int = 0

    @property
    def num_wide(self) -> int:
        return len(self.numbers) * self.num_in

    @property
    def num_row(self) -> int:
        return row_room(self.num_in)

    def multiply(
        self,
        x: torch.Tensor,
        out: torch.Tensor,
        workspace: LinearWorkspace,
        x_scales: torch.Tensor | None = None,
    ) -> None:
        assert x_scales is None and workspace.wide is not None, "inputs are never narrowed"
        wide = workspace.wide[: self.num_wide].view(-1, self.num_in)
        self.widen(wide)
        if self.bias is not None:
            torch.addmm(self.bias, x, wide.t(), out=out)
        else:
            torch.mm(x, wide.t(), out=out)

    def widen(self, out: torch.Tensor) -> None:
        """[outputs, inputs], rounded once."""
        num_out, num_words = self.numbers.shape
        block = min(256, triton.next_power_of_2(num_words))
        launcher: Any = _widen_kernel[(num_out, triton.cdiv(num_words, block))]
        launcher(
            out,
            self.numbers,
            self.scales,
            self.num_in,
            num_words,
            BITS=self.bits,
            GROUP=GROUP,
            BLOCK=block,
            EARLY=LAUNCHES_EARLY,
            num_warps=2,
            **EARLY_LAUNCH,
        )

    def multiply_row(
        self,
        out: torch.Tensor,
        x: torch.Tensor,
        workspace: LinearWorkspace,
        residual: torch.Tensor | None = None,
        norm: torch.Tensor | None = None,
        epsilon: float = 0.0,
        offset: float = 0.0,
        gated: bool = False,
        plan: RowPlan | None = None,
    ) -> None:
        """As row_linear."""
        assert x.shape == (1, self.num_in) and self.numbers.is_contiguous() and workspace.row is not None
        num_words = self.numbers.shape[1]
        num_out = len(self.numbers) // 2 if gated else len(self.numbers)
        plan = plan or narrow_row_plan(num_out, num_words, self.bits, gated)
        pairs, scales, zeros = _row_parts(workspace.row, num_words, self.bits)
        prepare: Any = _prepare_kernel[(triton.cdiv(num_words, WORDS_PREPARED),)]
        prepare(
            pairs,
            scales,
            zeros,
            x,
            norm,
            self.num_in,
            num_words,
            epsilon,
            offset,
            NORMS=norm is not None,
            BITS=self.bits,
            GROUP=GROUP,
            BLOCK=WORDS_PREPARED,
            VECTOR=WORDS_A_LOAD,
            WIDTH_BLOCK=min(4096, triton.next_power_of_2(self.num_in)),
            EARLY=LAUNCHES_EARLY,
            num_warps=4,
            **EARLY_LAUNCH,
        )
        launcher: Any = _narrow_row_kernel[(triton.cdiv(num_out, plan.block_out),)]
        launcher(
            out,
            pairs,
            scales,
            zeros,
            self.numbers,
            self.scales,
            self.bias,
            residual,
            num_out,
            num_words,
            GATED=gated,
            EVEN=num_words % plan.block_in == 0,
            EARLY=LAUNCHES_EARLY,
            BITS=self.bits,
            GROUP=GROUP,
            BLOCK_OUT=plan.block_out,
            BLOCK_WORDS=plan.block_in,
            VECTOR=WORDS_A_LOAD,
            num_warps=plan.num_warps,
            **EARLY_LAUNCH,
        )


def _row_parts(room: torch.Tensor, num_words: int, bits: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Pairs of inputs [pairs a word, words], scales [groups], and what the inputs of a load count of the zero."""
    num_pairs = WORD_BITS // bits // 2 * num_words
    num_loads = num_words // WORDS_A_LOAD
    num_groups = num_words * WORD_BITS // bits // GROUP
    pairs, zeros, scales = room[: num_pairs + num_loads + num_groups].split([num_pairs, num_loads, num_groups])
    return pairs, scales.view(torch.float32), zeros


def row_room(num_in: int) -> int:
    """The most of `_row_parts`, in words: with eight bits."""
    padded = triton.cdiv(num_in, GROUP) * GROUP
    return padded // 2 + padded // (4 * WORDS_A_LOAD) + padded // GROUP


@quick
@triton.jit
def _widen_kernel(
    out,
    words,
    scales,
    num_in,
    num_words,
    BITS: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
):
    IN_GROUP: tl.constexpr = GROUP * BITS // 32  # words
    launch_dependents(EARLY)
    row = tl.program_id(0).to(tl.int64)
    places = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_word = places < num_words
    tile = tl.load(words + row * num_words + places, mask=is_word, other=0)
    groups = places // IN_GROUP
    scale = tl.load(scales + row * (num_words // IN_GROUP) + groups, mask=is_word, other=0.0).to(tl.float32)
    first = groups * GROUP + places % IN_GROUP
    wait_for_earlier(EARLY)  # for who still reads what is written here
    for place in tl.static_range(32 // BITS):
        columns = first + place * IN_GROUP
        stored = (tile >> (BITS * place)) & ((1 << BITS) - 1)
        numbers = (stored - (1 << (BITS - 1))).to(tl.float32) * scale
        tl.store(out + row * num_in + columns, numbers.to(out.dtype.element_ty), mask=is_word & (columns < num_in))


@triton.jit
def _inputs(x, norm, columns, num_in, inverse, offset, NORMS: tl.constexpr):
    numbers = tl.load(x + columns, mask=columns < num_in, other=0.0).to(tl.float32)
    if NORMS:
        numbers *= inverse * (tl.load(norm + columns, mask=columns < num_in, other=0.0) + offset)
    return numbers


@triton.jit
def _prepare_kernel(
    pairs,
    scales,
    zeros,
    x,
    norm,
    num_in,
    num_words,
    epsilon,
    offset,
    NORMS: tl.constexpr,
    BITS: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK: tl.constexpr,
    VECTOR: tl.constexpr,
    WIDTH_BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Inputs as whole numbers of sixteen bits, two in a word as they meet the weights, with a scale for each group."""
    IN_GROUP: tl.constexpr = GROUP * BITS // 32  # words
    PER_WORD: tl.constexpr = 32 // BITS
    launch_dependents(EARLY)
    wait_for_earlier(EARLY)
    inverse = 1.0
    if NORMS:
        squares = tl.zeros([WIDTH_BLOCK], tl.float32)
        for start in range(0, num_in, WIDTH_BLOCK):
            columns = start + tl.arange(0, WIDTH_BLOCK)
            numbers = tl.load(x + columns, mask=columns < num_in, other=0.0).to(tl.float32)
            squares += numbers * numbers
        inverse = tl.rsqrt(tl.sum(squares, 0) / num_in + epsilon)
    # Words by group, [groups, words of a group].
    own_groups = tl.program_id(0) * (BLOCK // IN_GROUP) + tl.arange(0, BLOCK // IN_GROUP)
    words = own_groups[:, None] * IN_GROUP + tl.arange(0, IN_GROUP)[None, :]
    is_word = words < num_words
    first = own_groups[:, None] * GROUP + tl.arange(0, IN_GROUP)[None, :]
    top = tl.zeros([BLOCK // IN_GROUP, IN_GROUP], tl.float32)
    for place in tl.static_range(PER_WORD):
        top = tl.maximum(top, tl.abs(_inputs(x, norm, first + place * IN_GROUP, num_in, inverse, offset, NORMS)))
    scale = tl.maximum(tl.max(top, 1) / 32767.0, 1e-30)
    tl.store(scales + own_groups, scale, mask=own_groups * IN_GROUP < num_words)
    per_number = (1.0 / scale)[:, None]
    counted = tl.zeros([BLOCK // IN_GROUP, IN_GROUP], tl.int32)
    for pair in tl.static_range(PER_WORD // 2):
        # Four bits: the even places, then the odd ones, as they come out of a word.
        place = 2 * pair if BITS == 8 else (4 * pair if pair < 2 else 4 * pair - 7)
        apart = 1 if BITS == 8 else 2
        low_inputs = _inputs(x, norm, first + place * IN_GROUP, num_in, inverse, offset, NORMS)
        high_inputs = _inputs(x, norm, first + (place + apart) * IN_GROUP, num_in, inverse, offset, NORMS)
        low, high = _whole(low_inputs * per_number), _whole(high_inputs * per_number)
        counted += low + high
        tl.store(pairs + pair * num_words + words, (low & 0xFFFF) | (high << 16), mask=is_word)
    counted = tl.reshape(counted * (1 << (BITS - 1)), [BLOCK // VECTOR, VECTOR])
    loads = tl.program_id(0) * (BLOCK // VECTOR) + tl.arange(0, BLOCK // VECTOR)
    tl.store(zeros + loads, tl.sum(counted, 1), mask=loads * VECTOR < num_words)


@triton.jit
def _whole(numbers):
    """The nearest whole number, of up to sixteen bits."""
    return tl.where(numbers >= 0, numbers + 0.5, numbers - 0.5).to(tl.int32)


@triton.jit
def _two_products(pair, four, total, HIGH: tl.constexpr):
    """Add two numbers of sixteen bits times two of the four bytes, the low or the high ones."""
    if INTERPRETED:  # it knows no instructions
        shift = 16 if HIGH else 0
        return total + ((pair << 16) >> 16) * ((four >> shift) & 255) + (pair >> 16) * ((four >> (shift + 8)) & 255)
    if HIGH:
        return tl.inline_asm_elementwise(
            "dp2a.hi.s32.u32 $0, $1, $2, $3;", "=r,r,r,r", [pair, four, total], dtype=tl.int32, is_pure=True, pack=1
        )
    return tl.inline_asm_elementwise(
        "dp2a.lo.s32.u32 $0, $1, $2, $3;", "=r,r,r,r", [pair, four, total], dtype=tl.int32, is_pure=True, pack=1
    )


@triton.jit
def _products(words, pairs_0, pairs_1, pairs_2, pairs_3, BITS: tl.constexpr):
    """[outputs, loads, words of a load] -> [outputs, loads], the sums of what words and inputs give."""
    total = tl.zeros([words.shape[0], words.shape[1], words.shape[2]], tl.int32)
    if BITS == 8:
        total = _two_products(pairs_0, words, total, False)
        total = _two_products(pairs_1, words, total, True)
    else:
        even, odd = words & 0x0F0F0F0F, (words >> 4) & 0x0F0F0F0F
        total = _two_products(pairs_0, even, total, False)
        total = _two_products(pairs_1, even, total, True)
        total = _two_products(pairs_2, odd, total, False)
        total = _two_products(pairs_3, odd, total, True)
    return tl.sum(total, 2)


@triton.jit
def _load_words(pointers, is_word, EVEN: tl.constexpr):
    if EVEN:
        return tl.load(pointers)
    return tl.load(pointers, mask=is_word, other=0)


@triton.jit
def _take_words(
    tile, up_tile, pairs, x_scales, zeros, scales, up_scales, places, num_words, total, up_total,
    GATED: tl.constexpr, EVEN: tl.constexpr, BITS: tl.constexpr, GROUP: tl.constexpr, VECTOR: tl.constexpr,
):  # fmt: skip
    """Add what some words of the rows give. The words of a load are all of one group."""
    IN_GROUP: tl.constexpr = GROUP * BITS // 32  # words
    is_word = (places < num_words)[None, :, :]
    meets = pairs + places[None, :, :]
    pairs_0 = _load_words(meets, is_word, EVEN)
    pairs_1 = _load_words(meets + num_words, is_word, EVEN)
    pairs_2 = _load_words(meets + 2 * num_words, is_word, EVEN) if BITS == 4 else pairs_0
    pairs_3 = _load_words(meets + 3 * num_words, is_word, EVEN) if BITS == 4 else pairs_1
    first = tl.min(places, 1)
    is_load = first < num_words
    loads, groups = first // VECTOR, first // IN_GROUP
    zero = tl.load(zeros + loads, mask=is_load, other=0)[None, :]
    x_scale = tl.load(x_scales + groups, mask=is_load, other=0.0)[None, :]
    scale = tl.load(scales + groups[None, :], mask=is_load[None, :], other=0.0).to(tl.float32)
    sums = _products(tile, pairs_0, pairs_1, pairs_2, pairs_3, BITS) - zero
    total += sums.to(tl.float32) * (scale * x_scale)
    if GATED:
        up_scale = tl.load(up_scales + groups[None, :], mask=is_load[None, :], other=0.0).to(tl.float32)
        up_sums = _products(up_tile, pairs_0, pairs_1, pairs_2, pairs_3, BITS) - zero
        up_total += up_sums.to(tl.float32) * (up_scale * x_scale)
    return total, up_total


@triton.jit
def _narrow_row_kernel(
    out,
    pairs,
    x_scales,
    zeros,
    words,
    scales,
    bias,
    residual,
    num_out,
    num_words,
    GATED: tl.constexpr,
    EVEN: tl.constexpr,
    EARLY: tl.constexpr,
    BITS: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK_OUT: tl.constexpr,
    BLOCK_WORDS: tl.constexpr,
    VECTOR: tl.constexpr,
):
    launch_dependents(EARLY)
    outputs = tl.program_id(0) * BLOCK_OUT + tl.arange(0, BLOCK_OUT)
    is_output = outputs < num_out
    # Words as [loads, VECTOR]: what one thread loads in one instruction.
    places = tl.arange(0, BLOCK_WORDS // VECTOR)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
    # Rows past the last are read as the last one again, which costs no mask; they are never stored.
    own = tl.minimum(outputs, num_out - 1).to(tl.int64)
    rows = words + own[:, None, None] * num_words + places[None, :, :]
    up_rows = rows + num_out.to(tl.int64) * num_words
    num_groups = num_words // (GROUP * BITS // 32)
    own_scales = scales + own[:, None] * num_groups
    up_scales = own_scales + num_out.to(tl.int64) * num_groups
    # The first tile does not depend on x.
    is_word = (places < num_words)[None, :, :]
    tile = _load_words(rows, is_word, EVEN)
    up_tile = _load_words(up_rows, is_word, EVEN) if GATED else tile
    wait_for_earlier(EARLY)

    total = tl.zeros([BLOCK_OUT, BLOCK_WORDS // VECTOR], tl.float32)
    up_total = total
    total, up_total = _take_words(
        tile, up_tile, pairs, x_scales, zeros, own_scales, up_scales, places, num_words, total, up_total,
        GATED, EVEN, BITS, GROUP, VECTOR
    )  # fmt: skip
    for start in range(BLOCK_WORDS, num_words, BLOCK_WORDS):
        is_word = (start + places < num_words)[None, :, :]
        tile = _load_words(rows + start, is_word, EVEN)
        up_tile = _load_words(up_rows + start, is_word, EVEN) if GATED else tile
        total, up_total = _take_words(
            tile, up_tile, pairs, x_scales, zeros, own_scales, up_scales, start + places, num_words, total, up_total,
            GATED, EVEN, BITS, GROUP, VECTOR
        )  # fmt: skip
    sums = tl.sum(total, 1)
    if GATED:
        sums = activated(sums, IS_GELU=False) * tl.sum(up_total, 1)
    if bias is not None:
        sums += tl.load(bias + outputs, mask=is_output, other=0.0).to(tl.float32)
    if residual is not None:
        sums += tl.load(residual + outputs, mask=is_output, other=0.0).to(tl.float32)
    tl.store(out + outputs, sums.to(out.dtype.element_ty), mask=is_output)
