"""typical_p: of each row the tokens stay whose surprise is nearest the expected one, as many as their mass wants.

That is an order by the distance from the mean logit, which ranks nothing by the logit itself; so there is no border as
the other filters have one, and what falls out becomes -inf where it stands. Nothing is sorted: one program a row
searches the largest distance by its bits, in passes that weigh the tokens within several distances at once. Weights are
float32 numbers: where the mass comes within a millionth of what is wanted, the set may be a token off the reference's.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from pagoda.kernels.cuda.sampling import Borders
from pagoda.kernels.cuda.tiles import LOG2_E

BLOCK = 1024
THRESHOLDS = 16
LARGEST_DISTANCE = tl.constexpr(0x7FEFFFFFFFFFFFFF)  # the bits of the largest float64


def keep_typical(logits: torch.Tensor, temperature: torch.Tensor, borders: Borders, typical_p: torch.Tensor) -> None:
    """Rule out of [R, V] float32 logits, in place, what lies beyond a row's border, and of the rest what typical_p [R]
    drops. Rows of typical_p 1 or temperature 0 are left alone, and so is a logit that is no number below infinity."""
    num_rows, vocab_size = logits.shape
    assert logits.stride(1) == 1 and logits.dtype == torch.float32
    _keep_typical[(num_rows,)](
        logits,
        logits.stride(0),
        vocab_size,
        temperature,
        typical_p,
        borders.logits,
        borders.token_ids,
        LOG2_E,
        BLOCK=BLOCK,
        THRESHOLDS=THRESHOLDS,
        num_warps=16,
    )


@triton.jit
def _load_kept(logits, start, vocab_size, border, border_token, BLOCK: tl.constexpr):
    """Logits, their tokens, and which of them are numbers up to the border."""
    tokens = start + tl.arange(0, BLOCK)
    values = tl.load(logits + tokens, mask=tokens < vocab_size, other=-float("inf"))
    is_number = (values > -float("inf")) & (values < float("inf"))
    return values, tokens, is_number & ((values > border) | ((values == border) & (tokens <= border_token)))


@triton.jit
def _distances(values, largest, per_temperature, mean):
    """Bits that order as the distances from the mean do."""
    scaled = (values.to(tl.float64) - largest) * per_temperature
    return tl.abs(scaled - mean).to(tl.int64, bitcast=True)


@triton.jit
def _keep_typical(
    all_logits, logits_row, vocab_size, temperatures, typical_ps, border_logits, border_tokens, log2_e,
    BLOCK: tl.constexpr, THRESHOLDS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    temperature, typical_p = tl.load(temperatures + row), tl.load(typical_ps + row)
    border, border_token = tl.load(border_logits + row), tl.load(border_tokens + row)
    if (temperature > 0) & (typical_p < 1.0):
        logits = all_logits + row.to(tl.int64) * logits_row
        scale = log2_e / temperature
        per_temperature = 1.0 / temperature.to(tl.float64)
        tops = tl.full([BLOCK], -float("inf"), tl.float32)
        for start in range(0, vocab_size, BLOCK):
            values, _tokens, is_kept = _load_kept(logits, start, vocab_size, border, border_token, BLOCK)
            tops = tl.maximum(tops, tl.where(is_kept, values, -float("inf")))
        top = tl.max(tops, 0)
        top = tl.where(top > -float("inf"), top, 0.0)
        largest = top.to(tl.float64)

        weights, moments = tl.zeros([BLOCK], tl.float64), tl.zeros([BLOCK], tl.float64)
        for start in range(0, vocab_size, BLOCK):
            values, _tokens, is_kept = _load_kept(logits, start, vocab_size, border, border_token, BLOCK)
            values = tl.where(is_kept, values, top)
            own = tl.where(is_kept, tl.exp2((values - top) * scale), 0.0).to(tl.float64)
            weights += own
            moments += own * ((values.to(tl.float64) - largest) * per_temperature)
        whole = tl.sum(weights, 0)
        mean = tl.sum(moments, 0) / tl.maximum(whole, 1e-300)
        wanted = typical_p.to(tl.float64) * whole
        last, beyond = _search(
            logits, vocab_size, border, border_token, top, scale, largest, per_temperature, mean, wanted, BLOCK,
            THRESHOLDS
        )  # fmt: skip
        last_token = _last_token(
            logits, vocab_size, border, border_token, top, scale, largest, per_temperature, mean, last,
            wanted - beyond, BLOCK
        )  # fmt: skip
        for start in range(0, vocab_size, BLOCK):
            values, tokens, is_kept = _load_kept(logits, start, vocab_size, border, border_token, BLOCK)
            distances = _distances(values, largest, per_temperature, mean)
            stays = is_kept & ((distances < last) | ((distances == last) & (tokens <= last_token)))
            falls = (stays == 0) & (values < float("inf")) & (tokens < vocab_size)
            tl.store(logits + tokens, tl.full([BLOCK], -float("inf"), tl.float32), mask=falls)


@triton.jit
def _search(
    logits, vocab_size, border, border_token, top, scale, largest, per_temperature, mean, wanted,
    BLOCK: tl.constexpr, THRESHOLDS: tl.constexpr,
):  # fmt: skip
    """The smallest distance within which `wanted` is reached, itself included, and what weighs less far off."""
    low, high = tl.full([], -1, tl.int64), tl.full([], LARGEST_DISTANCE, tl.int64)
    beyond = tl.zeros([], tl.float64)
    while high - low > 1:
        steps = (tl.arange(0, THRESHOLDS) + 1).to(tl.int64)
        thresholds = tl.minimum(low + tl.maximum((high - low) // (THRESHOLDS + 1), 1) * steps, high - 1)
        sums = tl.zeros([THRESHOLDS, BLOCK], tl.float32)
        for start in range(0, vocab_size, BLOCK):
            values, _tokens, is_kept = _load_kept(logits, start, vocab_size, border, border_token, BLOCK)
            distances = _distances(values, largest, per_temperature, mean)
            own = tl.where(is_kept, tl.exp2((values - top) * scale), 0.0)
            sums += tl.where(distances[None, :] <= thresholds[:, None], own[None, :], 0.0)
        amounts = tl.sum(sums.to(tl.float64), 1)
        reached = amounts >= wanted
        high = tl.minimum(high, tl.min(tl.where(reached, thresholds, high), 0))
        is_new = (reached == 0) & (thresholds > low)
        if tl.max(is_new.to(tl.int32), 0) > 0:
            low = tl.max(tl.where(is_new, thresholds, low), 0)
            beyond = tl.max(tl.where(is_new & (thresholds == low), amounts, 0.0), 0)
    return high, beyond


@triton.jit
def _last_token(
    logits, vocab_size, border, border_token, top, scale, largest, per_temperature, mean, last, lacking,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The last token that stays of those at the last distance: as many as still lack, at least one."""
    found = vocab_size
    before = tl.zeros([], tl.float64)
    for start in range(0, vocab_size, BLOCK):
        values, tokens, is_kept = _load_kept(logits, start, vocab_size, border, border_token, BLOCK)
        is_tied = is_kept & (_distances(values, largest, per_temperature, mean) == last)
        own = tl.where(is_tied, tl.exp2((values - top) * scale), 0.0).to(tl.float64)
        is_enough = is_tied & (before + tl.cumsum(own, 0) >= lacking)
        found = tl.minimum(found, tl.min(tl.where(is_enough, tokens, vocab_size), 0))
        before += tl.sum(own, 0)
    return found
