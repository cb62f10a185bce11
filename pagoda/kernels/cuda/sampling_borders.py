"""min_p, top_k and top_p without a sort: each keeps the tokens of a row that rank up to some token, the border.

Tokens rank by logit, equal ones by id. One program a row searches the border by its bits: a pass over the row counts
(or weighs) the tokens above several thresholds at once, and the next pass looks between two of them. Counts are exact.
The mass of top_p is a sum of float32 numbers: where the border lies within a millionth of the whole mass from the
reference's, it may come out one token longer or shorter.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from pagoda.kernels.cuda.sampling import Borders, DrawTensors
from pagoda.kernels.cuda.tiles import LOG2_E

BLOCK = 2048
THRESHOLDS = 16
NO_KEY = tl.constexpr(-(2**31))


def find_borders(
    borders: Borders,
    logits: torch.Tensor,
    draws: DrawTensors,
    top_k: torch.Tensor | None = None,
    top_p: torch.Tensor | None = None,
    log_min_p: torch.Tensor | None = None,
) -> None:
    """The borders of [R, V] logits by the filters of each row: int32, float32 and float64 (logarithms, -inf for none).

    top_k = 0 and top_p = 1 leave a row as it is, and so does a temperature of 0. A token of logit -inf is none.
    """
    num_rows, vocab_size = logits.shape
    assert logits.stride(1) == 1
    _find_borders[(num_rows,)](
        borders.logits,
        borders.token_ids,
        logits,
        logits.stride(0),
        vocab_size,
        draws.temperature,
        top_k,
        top_p,
        log_min_p,
        LOG2_E,
        BLOCK=BLOCK,
        THRESHOLDS=THRESHOLDS,
        num_warps=16,
    )


@triton.jit
def _flip(bits):
    """Between the bits of a float32 and an integer that orders as the floats do; its own inverse."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def _load_keys(logits, tokens, vocab_size):
    """Integers that order as the logits do; NO_KEY for a token that was ruled out."""
    values = tl.load(logits + tokens, mask=tokens < vocab_size, other=-float("inf")).to(tl.float32)
    keys = _flip(tl.where(values == 0.0, 0.0, values).to(tl.int32, bitcast=True))  # one zero, not two
    return tl.where(values > -float("inf"), keys, NO_KEY)


@triton.jit
def _key_to_float(key):
    return _flip(key).to(tl.float32, bitcast=True)


@triton.jit
def _weights(keys, largest, scale):
    """What the tokens weigh beside the largest logit; `scale` is log2 e over the temperature."""
    return tl.exp2((_key_to_float(keys) - largest) * scale)


@triton.jit
def _above(
    logits, vocab_size, thresholds, border_key, border_token, largest, scale, WEIGHED: tl.constexpr,
    BLOCK: tl.constexpr, THRESHOLDS: tl.constexpr,
):  # fmt: skip
    """How many tokens up to the border have a key of at least each threshold, or what they weigh: [THRESHOLDS]."""
    sums = tl.zeros([THRESHOLDS, BLOCK], tl.float32)
    for start in range(0, vocab_size, BLOCK):
        tokens = start + tl.arange(0, BLOCK)
        keys = _load_keys(logits, tokens, vocab_size)
        is_kept = (keys > border_key) | ((keys == border_key) & (tokens <= border_token))
        counted = is_kept & (keys > NO_KEY)
        amounts = counted.to(tl.float32)
        if WEIGHED:
            amounts = tl.where(counted, _weights(keys, largest, scale), 0.0)
        sums += tl.where(keys[None, :] >= thresholds[:, None], amounts[None, :], 0.0)
    return tl.sum(sums.to(tl.float64), 1)


@triton.jit
def _search(
    logits, vocab_size, wanted, low, high, border_key, border_token, largest, scale, WEIGHED: tl.constexpr,
    BLOCK: tl.constexpr, THRESHOLDS: tl.constexpr,
):  # fmt: skip
    """The largest key above which, itself included, `wanted` is reached, and what lies strictly above it.

    It is reached at `low` and not at `high`.
    """
    beyond = tl.zeros([], tl.float64)
    while high - low > 1:
        steps = (tl.arange(0, THRESHOLDS) + 1).to(tl.int64)
        thresholds = low + tl.maximum((high - low) * steps // (THRESHOLDS + 1), 1)
        amounts = _above(
            logits, vocab_size, thresholds, border_key, border_token, largest, scale, WEIGHED, BLOCK, THRESHOLDS
        )
        reached = amounts >= wanted
        low = tl.maximum(low, tl.max(tl.where(reached, thresholds, low), 0))
        is_new = (thresholds < high) & (reached == 0)
        if tl.max(is_new.to(tl.int32), 0) > 0:
            high = tl.min(tl.where(is_new, thresholds, high), 0)
            beyond = tl.max(tl.where(is_new & (thresholds == high), amounts, 0.0), 0)
    return low.to(tl.int32), beyond


@triton.jit
def _tied_token(logits, vocab_size, key, count, BLOCK: tl.constexpr):
    """The id of the count-th token of this key; the last id of the vocabulary if there are fewer."""
    found = vocab_size
    seen = 0
    for start in range(0, vocab_size, BLOCK):
        tokens = start + tl.arange(0, BLOCK)
        is_tied = (_load_keys(logits, tokens, vocab_size) == key).to(tl.int32)
        numbers = seen + tl.cumsum(is_tied, 0)
        found = tl.minimum(found, tl.min(tl.where((is_tied == 1) & (numbers == count), tokens, vocab_size), 0))
        seen += tl.sum(is_tied, 0)
    return found


@triton.jit
def _find_borders(
    border_logits,
    border_tokens,
    all_logits,
    logits_row,
    vocab_size,
    temperatures,
    top_ks,
    top_ps,
    log_min_ps,
    log2_e,
    BLOCK: tl.constexpr,
    THRESHOLDS: tl.constexpr,
):
    row = tl.program_id(0)
    temperature = tl.load(temperatures + row)
    top_k, top_p = tl.full([], 0, tl.int32), tl.full([], 1.0, tl.float32)
    log_min_p = tl.full([], -float("inf"), tl.float64)
    if top_ks is not None:
        top_k = tl.load(top_ks + row)
    if top_ps is not None:
        top_p = tl.load(top_ps + row)
    if log_min_ps is not None:
        log_min_p = tl.load(log_min_ps + row)
    key, token = tl.full([], NO_KEY, tl.int32), vocab_size
    if (temperature > 0) & ((top_k > 0) | (top_p < 1.0) | (log_min_p > -float("inf"))):
        logits = all_logits + row.to(tl.int64) * logits_row
        scale = log2_e / temperature
        largest_key = _largest(logits, vocab_size, BLOCK)
        largest = _key_to_float(largest_key)
        low, high = key.to(tl.int64), largest_key.to(tl.int64) + 1
        if log_min_p > -float("inf"):
            key = _min_p_key(largest, temperature.to(tl.float64), log_min_p)
            low = key.to(tl.int64)
        if top_k > 0:
            kept = _above(
                logits, vocab_size, low + tl.zeros([THRESHOLDS], tl.int64), NO_KEY, vocab_size, largest, scale, False,
                BLOCK, THRESHOLDS
            )  # fmt: skip
            if tl.max(kept, 0) > top_k:
                key, beyond = _search(
                    logits, vocab_size, top_k.to(tl.float64), low, high, NO_KEY, vocab_size, largest, scale, False,
                    BLOCK, THRESHOLDS
                )  # fmt: skip
                token = _tied_token(logits, vocab_size, key, top_k - beyond.to(tl.int32), BLOCK)
        if top_p < 1.0:
            low = key.to(tl.int64)
            mass = _above(
                logits, vocab_size, low + tl.zeros([THRESHOLDS], tl.int64), key, token, largest, scale, True,
                BLOCK, THRESHOLDS
            )  # fmt: skip
            wanted = top_p.to(tl.float64) * tl.max(mass, 0)
            last_key, beyond = _search(
                logits, vocab_size, wanted, low, high, key, token, largest, scale, True, BLOCK, THRESHOLDS
            )
            # Of equal tokens at the border as many as still lack, at least one.
            each = tl.exp2((_key_to_float(last_key) - largest) * scale).to(tl.float64)
            lacking = tl.maximum(tl.ceil((wanted - beyond) / each), 1.0)
            last_token = _tied_token(logits, vocab_size, last_key, tl.minimum(lacking, vocab_size).to(tl.int32), BLOCK)
            token = tl.where(last_key == key, tl.minimum(token, last_token), last_token)
            key = last_key
    tl.store(border_logits + row, tl.where(key == NO_KEY, -float("inf"), _key_to_float(key)))
    tl.store(border_tokens + row, token)


@triton.jit
def _largest(logits, vocab_size, BLOCK: tl.constexpr):
    best = tl.full([BLOCK], NO_KEY, tl.int32)
    for start in range(0, vocab_size, BLOCK):
        best = tl.maximum(best, _load_keys(logits, start + tl.arange(0, BLOCK), vocab_size))
    return tl.max(best, 0)


@triton.jit
def _min_p_key(largest, temperature, log_min_p):
    """The smallest key whose logit over the temperature reaches that of the largest plus log_min_p, in float64."""
    limit = largest.to(tl.float64) / temperature + log_min_p
    nearest = _flip((limit * temperature).to(tl.float32).to(tl.int32, bitcast=True))
    keys = nearest + tl.arange(0, 8) - 4
    reached = _key_to_float(keys).to(tl.float64) / temperature >= limit
    return tl.min(tl.where(reached, keys, 2**31 - 1), 0)
