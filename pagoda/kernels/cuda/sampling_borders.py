"""min_p, top_k and top_p without a sort: each keeps the tokens of a row that rank up to some token, the border.

Tokens rank by logit, equal ones by id. One program a row searches the border by its bits, in the row's candidates
(sampling_candidates.py): a pass counts, or weighs, the tokens above several thresholds at once, and the next pass looks
between two of them. Counts are exact. The mass of top_p is a sum of float32 numbers: where it comes within a millionth
of the border, the border may lie one token off the reference's.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from pagoda.kernels.cuda.sampling import Borders, DrawTensors
from pagoda.kernels.cuda.sampling_candidates import Candidates, key_to_float, list_candidates, load_keys, min_p_key
from pagoda.kernels.cuda.tiles import LOG2_E

BLOCK = 2048
LIST_BLOCK = 512
THRESHOLDS = 16
NO_KEY = tl.constexpr(-(2**31))


def find_borders(
    borders: Borders,
    logits: torch.Tensor,
    draws: DrawTensors,
    top_k: torch.Tensor | None = None,
    top_p: torch.Tensor | None = None,
    log_min_p: torch.Tensor | None = None,
    *,
    lists: Candidates,
) -> None:
    """The borders of [R, V] logits by the filters of each row: int32, float32 and float64 (logarithms, -inf for none).

    top_k = 0 and top_p = 1 leave a row as it is, and so does a temperature of 0. A token of logit -inf is none.
    `lists` is scratch of candidate_lists.
    """
    num_rows, vocab_size = logits.shape
    assert logits.stride(1) == 1 and num_rows <= len(lists.keys)
    list_candidates(lists, logits, draws.temperature, top_k, top_p, log_min_p)
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
        lists.keys,
        lists.token_ids,
        lists.counts,
        lists.masses,
        lists.largest,
        lists.lowest,
        LOG2_E,
        MOST_LISTED=lists.keys.shape[1],
        BLOCK=BLOCK,
        LIST_BLOCK=LIST_BLOCK,
        THRESHOLDS=THRESHOLDS,
        num_warps=16,
    )


@triton.jit
def _load_items(items, tokens_listed, start, num_items, LISTED: tl.constexpr, BLOCK: tl.constexpr):
    """Keys and ids, from a list of candidates or from a row of logits."""
    places = start + tl.arange(0, BLOCK)
    if LISTED:
        keys = tl.load(items + places, mask=places < num_items, other=NO_KEY)
        tokens = tl.load(tokens_listed + places, mask=places < num_items, other=0)
    else:
        keys, tokens = load_keys(items, places, num_items), places
    return keys, tokens


@triton.jit
def _weights(keys, largest, scale):
    """What the tokens weigh beside the largest logit; `scale` is log2 e over the temperature."""
    return tl.exp2((key_to_float(keys) - largest) * scale)


@triton.jit
def _above(
    items, tokens_listed, num_items, thresholds, border_key, border_token, largest, scale, WEIGHED: tl.constexpr,
    LISTED: tl.constexpr, BLOCK: tl.constexpr, THRESHOLDS: tl.constexpr,
):  # fmt: skip
    """How many tokens up to the border have a key of at least each threshold, or what they weigh: [THRESHOLDS]."""
    sums = tl.zeros([THRESHOLDS, BLOCK], tl.float32)
    for start in range(0, num_items, BLOCK):
        keys, tokens = _load_items(items, tokens_listed, start, num_items, LISTED, BLOCK)
        is_kept = (keys > border_key) | ((keys == border_key) & (tokens <= border_token))
        counted = is_kept & (keys > NO_KEY)
        amounts = counted.to(tl.float32)
        if WEIGHED:
            amounts = tl.where(counted, _weights(keys, largest, scale), 0.0)
        sums += tl.where(keys[None, :] >= thresholds[:, None], amounts[None, :], 0.0)
    return tl.sum(sums.to(tl.float64), 1)


@triton.jit
def _search(
    items, tokens_listed, num_items, wanted, low, high, border_key, border_token, largest, scale,
    WEIGHED: tl.constexpr, LISTED: tl.constexpr, BLOCK: tl.constexpr, THRESHOLDS: tl.constexpr,
):  # fmt: skip
    """The largest key above which, itself included, `wanted` is reached, and what lies strictly above it.

    It is reached at `low` and not at `high`.
    """
    beyond = tl.zeros([], tl.float64)
    while high - low > 1:
        steps = (tl.arange(0, THRESHOLDS) + 1).to(tl.int64)
        thresholds = low + tl.maximum((high - low) * steps // (THRESHOLDS + 1), 1)
        amounts = _above(
            items, tokens_listed, num_items, thresholds, border_key, border_token, largest, scale, WEIGHED, LISTED,
            BLOCK, THRESHOLDS
        )  # fmt: skip
        reached = amounts >= wanted
        low = tl.maximum(low, tl.max(tl.where(reached, thresholds, low), 0))
        is_new = (thresholds < high) & (reached == 0)
        if tl.max(is_new.to(tl.int32), 0) > 0:
            high = tl.min(tl.where(is_new, thresholds, high), 0)
            beyond = tl.max(tl.where(is_new & (thresholds == high), amounts, 0.0), 0)
    return low.to(tl.int32), beyond


@triton.jit
def _tied_token(
    items, tokens_listed, num_items, vocab_size, key, count, LISTED: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """The id of the count-th token of this key; the last id of the vocabulary if there are fewer."""
    found = vocab_size
    seen = 0
    for start in range(0, num_items, BLOCK):
        keys, tokens = _load_items(items, tokens_listed, start, num_items, LISTED, BLOCK)
        is_tied = (keys == key).to(tl.int32)
        numbers = seen + tl.cumsum(is_tied, 0)
        found = tl.minimum(found, tl.min(tl.where((is_tied == 1) & (numbers == count), tokens, vocab_size), 0))
        seen += tl.sum(is_tied, 0)
    return found


@triton.jit
def _filter(
    items, tokens_listed, num_items, vocab_size, largest_key, lowest_key, whole, temperature, top_k, top_p, log_min_p,
    log2_e, LISTED: tl.constexpr, BLOCK: tl.constexpr, THRESHOLDS: tl.constexpr,
):  # fmt: skip
    """The key and the id of the border. `whole` is what all tokens weigh that min_p leaves.

    The border is not below lowest_key.
    """
    key, token = tl.full([], NO_KEY, tl.int32), vocab_size
    scale = log2_e / temperature
    largest = key_to_float(largest_key)
    low, high = lowest_key.to(tl.int64), largest_key.to(tl.int64) + 1
    everything = tl.zeros([THRESHOLDS], tl.int64) + NO_KEY
    if log_min_p > -float("inf"):
        key = min_p_key(largest, temperature.to(tl.float64), log_min_p)
        low = tl.maximum(low, key.to(tl.int64))
    if top_k > 0:
        kept = _above(
            items, tokens_listed, num_items, everything, key, token, largest, scale, False, LISTED, BLOCK, THRESHOLDS
        )
        if tl.max(kept, 0) > top_k:
            key, beyond = _search(
                items, tokens_listed, num_items, top_k.to(tl.float64), low, high, NO_KEY, vocab_size, largest, scale,
                False, LISTED, BLOCK, THRESHOLDS
            )  # fmt: skip
            lacking = top_k - beyond.to(tl.int32)
            token = _tied_token(items, tokens_listed, num_items, vocab_size, key, lacking, LISTED, BLOCK)
            low = key.to(tl.int64)
        if top_p < 1.0:
            mass = _above(
                items, tokens_listed, num_items, everything, key, token, largest, scale, True, LISTED, BLOCK, THRESHOLDS
            )
            whole = tl.max(mass, 0)
    if top_p < 1.0:
        wanted = top_p.to(tl.float64) * whole
        last_key, beyond = _search(
            items, tokens_listed, num_items, wanted, low, high, key, token, largest, scale, True, LISTED, BLOCK,
            THRESHOLDS
        )  # fmt: skip
        # Of equal tokens at the border as many as still lack, at least one.
        each = tl.exp2((key_to_float(last_key) - largest) * scale).to(tl.float64)
        lacking = tl.minimum(tl.maximum(tl.ceil((wanted - beyond) / each), 1.0), vocab_size).to(tl.int32)
        last_token = _tied_token(items, tokens_listed, num_items, vocab_size, last_key, lacking, LISTED, BLOCK)
        token = tl.where(last_key == key, tl.minimum(token, last_token), last_token)
        key = last_key
    return key, token


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
    keys_listed,
    tokens_listed,
    counts,
    masses,
    largest_keys,
    lowest_keys,
    log2_e,
    MOST_LISTED: tl.constexpr,
    BLOCK: tl.constexpr,
    LIST_BLOCK: tl.constexpr,
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
        largest_key, whole = tl.load(largest_keys + row), tl.load(masses + row)
        count = tl.load(counts + row)
        if count > 0:
            listed, lowest_key = row * MOST_LISTED, tl.load(lowest_keys + row)
            key, token = _filter(
                keys_listed + listed, tokens_listed + listed, count, vocab_size, largest_key, lowest_key, whole,
                temperature, top_k, top_p, log_min_p, log2_e, True, LIST_BLOCK, THRESHOLDS
            )  # fmt: skip
        else:
            key, token = _filter(
                all_logits + row.to(tl.int64) * logits_row, tokens_listed, vocab_size, vocab_size, largest_key, key,
                whole, temperature, top_k, top_p, log_min_p, log2_e, False, BLOCK, THRESHOLDS
            )  # fmt: skip
    tl.store(border_logits + row, tl.where(key == NO_KEY, -float("inf"), key_to_float(key)))
    tl.store(border_tokens + row, token)
