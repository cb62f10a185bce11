"""Logits to tokens on the device: the best token of a row, or the best after Gumbel noise.

The rows are read once. Noise is that of kernels/reference/philox.py, word for word, and scores are added in float64 as
the reference adds them, so the tokens are the reference's. Which tokens of a row may be drawn comes as a border (see
sampling_borders.py): the filters all keep the tokens that rank before some token.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

CHUNK = 16384
BLOCK = 2048
NO_TOKEN = tl.constexpr(2**31 - 1)


@dataclass(frozen=True, eq=False)
class DrawTensors:
    """`Draws` of kernels/sampling.py on the device. A row of temperature 0 is greedy."""

    temperature: torch.Tensor  # [R] float32
    seeds: torch.Tensor  # [R] int64, the bits of the unsigned seed
    sample_indices: torch.Tensor  # [R] int32
    positions: torch.Tensor  # [R] int32


@dataclass(frozen=True, eq=False)
class Borders:
    """The last token of each row that may be drawn: its logit, and its id among equal logits."""

    logits: torch.Tensor  # [R] float32; -inf: all tokens
    token_ids: torch.Tensor  # [R] int32


@dataclass(frozen=True, eq=False)
class SamplingWorkspace:
    """The best token of each chunk of a row. `num_done` counts chunks and is all zeros between launches."""

    scores: torch.Tensor  # [rows, chunks] float64
    token_ids: torch.Tensor  # [rows, chunks] int32
    is_broken: torch.Tensor  # [rows, chunks] int32
    num_done: torch.Tensor  # [rows] int32


def sampling_workspace(num_rows: int, vocab_size: int, device: torch.device | str) -> SamplingWorkspace:
    shape = (num_rows, triton.cdiv(vocab_size, CHUNK))
    return SamplingWorkspace(
        torch.empty(shape, dtype=torch.float64, device=device),
        torch.empty(shape, dtype=torch.int32, device=device),
        torch.empty(shape, dtype=torch.int32, device=device),
        torch.zeros(num_rows, dtype=torch.int32, device=device),
    )


def sample_tokens(
    token_ids: torch.Tensor,
    is_broken: torch.Tensor,
    logits: torch.Tensor,
    workspace: SamplingWorkspace,
    draws: DrawTensors | None = None,
    borders: Borders | None = None,
) -> None:
    """token_ids[r] of [R, V] logits, without `draws` the best; of equal ones the lowest id. Both results are int32.

    is_broken[r] is 1 where the logits were not all numbers below infinity, and the token means nothing. A logit of
    -inf is a token that was ruled out.
    """
    num_rows, vocab_size = logits.shape
    assert logits.stride(1) == 1 and workspace.scores.shape[1] == triton.cdiv(vocab_size, CHUNK)
    assert num_rows <= len(workspace.scores), f"a workspace of {len(workspace.scores)} rows for {num_rows}"
    _sample[(workspace.scores.shape[1], num_rows)](
        token_ids,
        is_broken,
        logits,
        logits.stride(0),
        vocab_size,
        None if draws is None else draws.temperature,
        None if draws is None else draws.seeds,
        None if draws is None else draws.sample_indices,
        None if draws is None else draws.positions,
        None if borders is None else borders.logits,
        None if borders is None else borders.token_ids,
        workspace.scores,
        workspace.token_ids,
        workspace.is_broken,
        workspace.num_done,
        CHUNK=CHUNK,
        BLOCK=BLOCK,
        CHUNK_BLOCK=triton.next_power_of_2(workspace.scores.shape[1]),
        num_warps=8,
    )


@triton.jit
def gumbel(seed, sample_index, position, tokens_by_four):
    """The noise of the tokens 4 b .. 4 b + 3 for each b, as kernels/reference/philox.py defines it, in float64."""
    word_0, word_1, word_2, word_3 = tl.philox(seed, tokens_by_four, position, 0, sample_index)
    words = tl.interleave(tl.interleave(word_0, word_2), tl.interleave(word_1, word_3))
    # 1 - u is a number of 33 bits: exact, and so is what the logarithm sees.
    complements = 1.0 - (words.to(tl.uint32, bitcast=True).to(tl.float64) + 0.5) * (2.0**-32)
    return -tl.log(-tl.log(complements))


@triton.jit
def _best_logit(logits, first, last, vocab_size, BLOCK: tl.constexpr):
    """The best of the tokens [first, last), which lie in blocks; also whether something is no number."""
    lanes = tl.arange(0, BLOCK)
    best = tl.full([BLOCK], -float("inf"), tl.float32)
    best_tokens = first + lanes
    is_bad = tl.zeros([BLOCK], tl.int32)
    for start in range(first, last, BLOCK):
        tokens = start + lanes
        values = tl.load(logits + tokens, mask=tokens < last, other=-float("inf")).to(tl.float32)
        is_bad = is_bad | ((values != values) | (values == float("inf"))).to(tl.int32)
        is_better = values > best
        best = tl.where(is_better, values, best)
        best_tokens = tl.where(is_better, tokens, best_tokens)
    score = tl.max(best, 0)
    token = tl.min(tl.where(best == score, best_tokens, NO_TOKEN), 0)
    return score.to(tl.float64), token, tl.max(is_bad, 0)


@triton.jit
def _best_draw(
    logits, first, last, temperature, seed, sample_index, position, border, border_token, BLOCK: tl.constexpr
):
    """The best of logit / temperature + noise among the tokens [first, last) that rank up to the border."""
    lanes = tl.arange(0, BLOCK)
    best = tl.full([BLOCK], -float("inf"), tl.float64)
    best_tokens = first + lanes
    is_bad = tl.zeros([BLOCK], tl.int32)
    for start in range(first, last, BLOCK):
        tokens = start + lanes
        values = tl.load(logits + tokens, mask=tokens < last, other=-float("inf")).to(tl.float32)
        is_bad = is_bad | ((values != values) | (values == float("inf"))).to(tl.int32)
        is_kept = (values > border) | ((values == border) & (tokens <= border_token))
        is_kept = is_kept & (values > -float("inf"))
        if tl.max(is_kept.to(tl.int32), 0) > 0:
            fours = start // 4 + tl.arange(0, BLOCK // 4)
            scores = values.to(tl.float64) / temperature + gumbel(seed, sample_index, position, fours)
            is_better = is_kept & (scores > best)
            best = tl.where(is_better, scores, best)
            best_tokens = tl.where(is_better, tokens, best_tokens)
    score = tl.max(best, 0)
    token = tl.min(tl.where(best == score, best_tokens, NO_TOKEN), 0)
    return score, token, tl.max(is_bad, 0)


@triton.jit
def _sample(
    token_ids,
    is_broken,
    logits,
    logits_row,
    vocab_size,
    temperatures,
    seeds,
    sample_indices,
    positions,
    border_logits,
    border_tokens,
    chunk_scores,
    chunk_tokens,
    chunk_broken,
    num_done,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
    CHUNK_BLOCK: tl.constexpr,
):
    chunk, row = tl.program_id(0), tl.program_id(1)
    num_chunks = tl.num_programs(0)
    own = logits + row.to(tl.int64) * logits_row
    first, last = chunk * CHUNK, tl.minimum((chunk + 1) * CHUNK, vocab_size)
    if temperatures is None:
        score, token, broken = _best_logit(own, first, last, vocab_size, BLOCK)
    else:
        temperature = tl.load(temperatures + row)
        if temperature > 0:
            border, border_token = -float("inf"), vocab_size
            if border_logits is not None:
                border, border_token = tl.load(border_logits + row), tl.load(border_tokens + row)
            score, token, broken = _best_draw(
                own, first, last, temperature.to(tl.float64), tl.load(seeds + row), tl.load(sample_indices + row),
                tl.load(positions + row), border, border_token, BLOCK
            )  # fmt: skip
        else:
            score, token, broken = _best_logit(own, first, last, vocab_size, BLOCK)

    tl.store(chunk_scores + row * num_chunks + chunk, score)
    tl.store(chunk_tokens + row * num_chunks + chunk, token)
    tl.store(chunk_broken + row * num_chunks + chunk, broken)
    tl.debug_barrier()
    before = tl.atomic_add(num_done + row, 1, sem="acq_rel")
    if before == num_chunks - 1:
        tl.store(num_done + row, 0)
        chunks = tl.arange(0, CHUNK_BLOCK)
        is_chunk = chunks < num_chunks
        cells = row * num_chunks + chunks
        scores = tl.load(chunk_scores + cells, mask=is_chunk, other=-float("inf"), cache_modifier=".cg")
        tokens = tl.load(chunk_tokens + cells, mask=is_chunk, other=NO_TOKEN, cache_modifier=".cg")
        broken_chunks = tl.load(chunk_broken + cells, mask=is_chunk, other=0, cache_modifier=".cg")
        best = tl.max(scores, 0)
        tl.store(token_ids + row, tl.min(tl.where(scores == best, tokens, NO_TOKEN), 0))
        tl.store(is_broken + row, tl.max(broken_chunks, 0))
