"""Logits to tokens on the device: the best token of a row, or the best after Gumbel noise.

The rows are read once. Noise is that of kernels/reference/philox.py, word for word, and the scores that decide are
added in float64 as the reference adds them, so the tokens are the reference's. Which tokens of a row may be drawn comes
as a border (see sampling_borders.py): the filters all keep the tokens that rank before some token.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

CHUNK = 32768
SMALL_CHUNK = 4096
FEW_ROWS = 32
BLOCK = 1024
# How far two rough scores may lie apart and still be in the wrong order: fixed, and as a share of their size.
ROUGH = tl.constexpr(4e-5)
ROUGH_SHARE = tl.constexpr(1e-6)
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
    """For up to so many rows of a vocabulary."""
    shape = (num_rows, triton.cdiv(vocab_size, SMALL_CHUNK))
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
    # Few rows are cut finer, so that they fill the device. It does not change the result.
    chunk = SMALL_CHUNK if num_rows <= FEW_ROWS else CHUNK
    num_chunks = triton.cdiv(vocab_size, chunk)
    assert logits.stride(1) == 1 and num_chunks <= workspace.scores.shape[1]
    assert num_rows <= len(workspace.scores), f"a workspace of {len(workspace.scores)} rows for {num_rows}"
    _sample[(num_chunks, num_rows)](
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
        CHUNK=chunk,
        BLOCK=BLOCK,
        CHUNK_BLOCK=triton.next_power_of_2(num_chunks),
        num_warps=8,
    )


@triton.jit
def gumbel(seed, sample_index, position, tokens_by_four):
    """The noise of the tokens 4 b .. 4 b + 3 for each b, as kernels/reference/philox.py defines it, in float64."""
    word_0, word_1, word_2, word_3 = tl.philox(seed, tokens_by_four, position, 0, sample_index)
    return _to_gumbel(tl.interleave(tl.interleave(word_0, word_2), tl.interleave(word_1, word_3)))


@triton.jit
def _gumbel_of(seed, sample_index, position, tokens):
    """The same for tokens in any order."""
    word_0, word_1, word_2, word_3 = tl.philox(seed, tokens // 4, position, 0, sample_index)
    lane = tokens % 4
    return _to_gumbel(tl.where(lane < 2, tl.where(lane == 0, word_0, word_1), tl.where(lane == 2, word_2, word_3)))


@triton.jit
def _to_gumbel(words):
    # 1 - u is a number of 33 bits: exact, and so is what the logarithm sees.
    complements = 1.0 - (words.to(tl.uint32, bitcast=True).to(tl.float64) + 0.5) * (2.0**-32)
    return -tl.log(-tl.log(complements))


@triton.jit
def _rough_gumbel(seed, sample_index, position, tokens_by_four):
    """The noise in float32, less than ROUGH / 2 from the true one."""
    word_0, word_1, word_2, word_3 = tl.philox(seed, tokens_by_four, position, 0, sample_index)
    words = tl.interleave(tl.interleave(word_0, word_2), tl.interleave(word_1, word_3)).to(tl.uint32, bitcast=True)
    uniforms = (words.to(tl.float32) + 0.5) * (2.0**-32)
    complements = ((words ^ 0xFFFFFFFF).to(tl.float32) + 0.5) * (2.0**-32)
    # Near 1 the logarithm has too few bits left; five terms of its series have enough below 1 / 16.
    series = uniforms * (1.0 + uniforms * (0.5 + uniforms * (1 / 3 + uniforms * (0.25 + uniforms * 0.2))))
    return -tl.log(tl.where(uniforms < 0.0625, series, -tl.log(complements)))


@triton.jit
def _is_bad(values):
    return ((values != values) | (values == float("inf"))).to(tl.int32)


@triton.jit
def _best_of(scores, tokens):
    """The best score and, of equal ones, the lowest token."""
    best = tl.max(scores, 0)
    return best, tl.min(tl.where(scores == best, tokens, NO_TOKEN), 0)


@triton.jit
def _best_logit(logits, first, last, BLOCK: tl.constexpr):
    """The best of the tokens [first, last); also whether something is no number."""
    lanes = tl.arange(0, BLOCK)
    best = tl.full([BLOCK], -float("inf"), tl.float32)
    best_tokens = first + lanes
    bad = tl.zeros([BLOCK], tl.int32)
    for start in range(first, last, BLOCK):
        tokens = start + lanes
        values = tl.load(logits + tokens, mask=tokens < last, other=-float("inf")).to(tl.float32)
        bad = bad | _is_bad(values)
        is_better = values > best
        best = tl.where(is_better, values, best)
        best_tokens = tl.where(is_better, tokens, best_tokens)
    score, token = _best_of(best, best_tokens)
    return score.to(tl.float64), token, tl.max(bad, 0)


@triton.jit
def _best_draw(
    logits, first, last, temperature, seed, sample_index, position, border, border_token, BORDERED: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The best of logit / temperature + noise among the tokens [first, last) that rank up to the border.

    Scores are first taken roughly, in float32. Each lane keeps its best token, and its second score to know whether
    the rough order can be trusted; exact scores are then needed for the lanes' best alone. Where a second score comes
    too near the best one, everything is done once more, exactly.
    """
    lanes = tl.arange(0, BLOCK)
    best = tl.full([BLOCK], -float("inf"), tl.float32)
    second = tl.full([BLOCK], -float("inf"), tl.float32)
    best_tokens = first + lanes
    bad = tl.zeros([BLOCK], tl.int32)
    rough_scale = (1.0 / temperature).to(tl.float32)
    for start in range(first, last, BLOCK):
        tokens = start + lanes
        values = tl.load(logits + tokens, mask=tokens < last, other=-float("inf")).to(tl.float32)
        bad = bad | _is_bad(values)
        is_kept = _is_kept(values, tokens, border, border_token)
        # Behind a border most blocks have nothing to draw; without one the question costs more than it saves.
        if not BORDERED or tl.max(is_kept.to(tl.int32), 0) > 0:
            noise = _rough_gumbel(seed, sample_index, position, start // 4 + tl.arange(0, BLOCK // 4))
            scores = tl.where(is_kept, values * rough_scale + noise, -float("inf"))
            is_better = scores > best
            second = tl.maximum(second, tl.minimum(scores, best))
            best = tl.where(is_better, scores, best)
            best_tokens = tl.where(is_better, tokens, best_tokens)

    limit = tl.max(best, 0)
    limit -= ROUGH + ROUGH_SHARE * tl.abs(limit)
    exact = tl.full([BLOCK], -float("inf"), tl.float64)
    if limit > -float("inf"):
        if tl.max(second, 0) < limit:
            values = tl.load(logits + best_tokens, mask=best >= limit, other=-float("inf")).to(tl.float64)
            exact = values / temperature + _gumbel_of(seed, sample_index, position, best_tokens)
        else:
            for start in range(first, last, BLOCK):
                tokens = start + lanes
                values = tl.load(logits + tokens, mask=tokens < last, other=-float("inf")).to(tl.float32)
                noise = gumbel(seed, sample_index, position, start // 4 + tl.arange(0, BLOCK // 4))
                scores = values.to(tl.float64) / temperature + noise
                is_better = _is_kept(values, tokens, border, border_token) & (scores > exact)
                exact = tl.where(is_better, scores, exact)
                best_tokens = tl.where(is_better, tokens, best_tokens)
    score, token = _best_of(exact, best_tokens)
    return score, token, tl.max(bad, 0)


@triton.jit
def _is_kept(values, tokens, border, border_token):
    is_before = (values > border) | ((values == border) & (tokens <= border_token))
    return is_before & (values > -float("inf"))


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
        score, token, broken = _best_logit(own, first, last, BLOCK)
    else:
        temperature = tl.load(temperatures + row)
        if temperature > 0:
            border, border_token = -float("inf"), vocab_size
            if border_logits is not None:
                border, border_token = tl.load(border_logits + row), tl.load(border_tokens + row)
            score, token, broken = _best_draw(
                own, first, last, temperature.to(tl.float64), tl.load(seeds + row), tl.load(sample_indices + row),
                tl.load(positions + row), border, border_token, border_logits is not None, BLOCK
            )  # fmt: skip
        else:
            score, token, broken = _best_logit(own, first, last, BLOCK)

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
