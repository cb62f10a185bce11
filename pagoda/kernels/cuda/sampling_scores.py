"""Log-probabilities and ranks of tokens, drawn ones or those of a prompt, and the best tokens beside them.

Every row is read once, in chunks: each gives its largest logit, its sum of exponentials, how many of its tokens rank
before the one in question, and its best tokens. A program a row then puts the chunks together. All sums are in float64,
and cut in the same way whatever runs beside a row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import triton
import triton.language as tl

from pagoda.core.sampling_params import MAX_LOGPROBS
from pagoda.kernels.cuda.sampling_candidates import flip, key_to_float
from pagoda.kernels.sampling import TokenLogprobs

CHUNK = 4096
MOST_BEST = tl.constexpr(MAX_LOGPROBS)
BEST_BLOCK = tl.constexpr(triton.next_power_of_2(MAX_LOGPROBS))
LAST_TOKEN = tl.constexpr(2**31 - 1)
NOTHING = tl.constexpr(-(2**63))

# A row of scores: the drawn token's, its rank, then ids and scores of the best; scores are the bits of float32.
BEST_TOKENS = tl.constexpr(2)
BEST_SCORES = tl.constexpr(2 + MAX_LOGPROBS)
SCORES_WIDTH = 2 + 2 * MAX_LOGPROBS


@dataclass(frozen=True, eq=False)
class ScoreScratch:
    """What each chunk of a row found. A key holds a logit and its token, and orders as they rank."""

    best: torch.Tensor  # [rows, chunks, MOST_BEST] int64
    largest: torch.Tensor  # [rows, chunks] float64
    totals: torch.Tensor  # [rows, chunks] float64, relative to the largest
    num_before: torch.Tensor  # [rows, chunks] int32


def score_scratch(num_rows: int, vocab_size: int, device: torch.device | str) -> ScoreScratch:
    """For up to so many rows of a vocabulary."""
    cells = (num_rows, triton.cdiv(vocab_size, CHUNK))
    return ScoreScratch(
        torch.empty((*cells, MAX_LOGPROBS), dtype=torch.int64, device=device),
        torch.empty(cells, dtype=torch.float64, device=device),
        torch.empty(cells, dtype=torch.float64, device=device),
        torch.empty(cells, dtype=torch.int32, device=device),
    )


def score_tokens(
    scores: torch.Tensor,
    logits: torch.Tensor,
    token_ids: torch.Tensor,
    rows: torch.Tensor,
    num_scores: torch.Tensor,
    scratch: ScoreScratch,
) -> None:
    """scores[r] of [R, SCORES_WIDTH] int32 for token_ids[r] under logits[r] of [R, V], as num_scores[rows[r]] asks: 0
    for none, else one more than there are best tokens to be listed.

    A row of -1 asks for none. Whoever asks for none is left alone, and so is what lies behind as many of the best
    tokens as are asked for.
    """
    num_rows, vocab_size = logits.shape
    num_chunks = triton.cdiv(vocab_size, CHUNK)
    assert logits.stride(1) == 1 and scores.is_contiguous()
    assert num_rows <= len(scratch.largest) and num_chunks == scratch.largest.shape[1]
    common = (logits, logits.stride(0), vocab_size, token_ids, rows, num_scores, num_scores.stride(0))
    found = (scratch.best, scratch.largest, scratch.totals, scratch.num_before)
    _score_chunks[(num_chunks, num_rows)](*common, *found, CHUNK=CHUNK, num_warps=8)
    _score_rows[(num_rows,)](
        scores, *common, *found, num_chunks, CHUNK_BLOCK=triton.next_power_of_2(num_chunks), num_warps=4
    )


def logprobs_of(scores: npt.NDArray[np.int32], num_scores: npt.NDArray[np.int32]) -> TokenLogprobs:
    """On the host: rows of scores as they came, of which some asked for any."""
    (rows,) = num_scores.nonzero()
    own = scores[rows]
    reals = own.view(np.float32)
    return TokenLogprobs(
        rows=rows.astype(np.int32),
        chosen=reals[:, 0],
        ranks=own[:, 1],
        num_top=num_scores[rows] - 1,
        top_token_ids=own[:, BEST_TOKENS.value : BEST_SCORES.value],
        top_values=reals[:, BEST_SCORES.value :],
    )


@triton.jit
def _asked(rows, num_scores, stride, entry):
    row = tl.load(rows + entry).to(tl.int64)
    return tl.load(num_scores + row * stride, mask=row >= 0, other=0)


@triton.jit
def _logit_of(logits, token, vocab_size):
    """Where the logits were no numbers, the token may be none."""
    return tl.load(logits + token, mask=(token >= 0) & (token < vocab_size), other=-float("inf")).to(tl.float32)


@triton.jit
def _score_chunks(
    all_logits, logits_row, vocab_size, token_ids, rows, all_num_scores, stride, best, largest, totals, num_before,
    CHUNK: tl.constexpr,
):  # fmt: skip
    chunk, entry, num_chunks = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.num_programs(0)
    num_scores = _asked(rows, all_num_scores, stride, entry)
    if num_scores > 0:
        logits = all_logits + entry * logits_row
        tokens = chunk * CHUNK + tl.arange(0, CHUNK)
        inside = tokens < vocab_size
        values = tl.load(logits + tokens, mask=inside, other=-float("inf")).to(tl.float32)
        drawn = tl.load(token_ids + entry)
        drawn_value = _logit_of(logits, drawn, vocab_size)
        is_before = inside & ((values > drawn_value) | ((values == drawn_value) & (tokens < drawn)))
        top = tl.max(values, 0).to(tl.float64)
        finite_top = tl.where(top > -float("inf"), top, 0.0)
        total = tl.sum(tl.exp(values.to(tl.float64) - finite_top), 0)
        cell = entry * num_chunks + chunk
        tl.store(largest + cell, top)
        tl.store(totals + cell, total)
        tl.store(num_before + cell, tl.sum(is_before.to(tl.int32), 0))

        keys = flip(tl.where(values == 0.0, 0.0, values).to(tl.int32, bitcast=True)).to(tl.int64)  # one zero, not two
        keys = tl.where(inside, (keys << 32) | (tokens ^ LAST_TOKEN).to(tl.int64), NOTHING)
        for place in range(0, num_scores - 1):
            key = tl.max(keys, 0)
            tl.store(best + cell * MOST_BEST + place, key)
            keys = tl.where(keys == key, NOTHING, keys)


@triton.jit
def _score_rows(
    scores, all_logits, logits_row, vocab_size, token_ids, rows, all_num_scores, stride, best, largest, totals,
    num_before, num_chunks, CHUNK_BLOCK: tl.constexpr,
):  # fmt: skip
    entry = tl.program_id(0).to(tl.int64)
    num_scores = _asked(rows, all_num_scores, stride, entry)
    if num_scores > 0:
        chunks = tl.arange(0, CHUNK_BLOCK)
        is_chunk = chunks < num_chunks
        cells = entry * num_chunks + chunks
        tops = tl.load(largest + cells, mask=is_chunk, other=-float("inf"))
        top = tl.max(tops, 0)
        weights = tl.where(is_chunk & (tops > -float("inf")), tl.exp(tops - top), 0.0)
        log_total = top + tl.log(tl.sum(tl.load(totals + cells, mask=is_chunk, other=0.0) * weights, 0))
        before = tl.sum(tl.load(num_before + cells, mask=is_chunk, other=0), 0)
        value = _logit_of(all_logits + entry * logits_row, tl.load(token_ids + entry), vocab_size)
        own = scores + entry * (BEST_SCORES + MOST_BEST)
        tl.store(own, (value.to(tl.float64) - log_total).to(tl.float32).to(tl.int32, bitcast=True))
        tl.store(own + 1, before + 1)

        places = tl.arange(0, BEST_BLOCK)
        is_held = is_chunk[:, None] & (places < num_scores - 1)[None, :]
        keys = tl.load(best + cells[:, None] * MOST_BEST + places[None, :], mask=is_held, other=NOTHING)
        for place in range(0, num_scores - 1):
            key = tl.max(tl.max(keys, 1), 0)
            token = (key & LAST_TOKEN).to(tl.int32) ^ LAST_TOKEN
            score = key_to_float((key >> 32).to(tl.int32)).to(tl.float64) - log_total
            tl.store(own + BEST_TOKENS + place, token)
            tl.store(own + BEST_SCORES + place, score.to(tl.float32).to(tl.int32, bitcast=True))
            keys = tl.where(keys == key, NOTHING, keys)
