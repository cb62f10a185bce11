"""The order of the steps, which docs/design/sampling.md gives reasons for."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pagoda.kernels.reference.sampling.bias import apply_allowed, apply_banned, apply_bias
from pagoda.kernels.reference.sampling.candidates import Candidates
from pagoda.kernels.reference.sampling.draw import draw, greedy
from pagoda.kernels.reference.sampling.logprobs import token_logprobs
from pagoda.kernels.reference.sampling.min_p import keep_min_p
from pagoda.kernels.reference.sampling.penalties import apply_penalties
from pagoda.kernels.reference.sampling.temperature import at_temperature
from pagoda.kernels.reference.sampling.top_k import keep_top_k
from pagoda.kernels.reference.sampling.top_p import keep_top_p
from pagoda.kernels.reference.sampling.typical import keep_typical
from pagoda.kernels.sampling import Draws, FloatArray, IntArray, SampledTokens, SamplingBatch, TokenLogprobs


def sample(logits: FloatArray, batch: SamplingBatch) -> SampledTokens:
    """One token for each row of [rows, vocabulary] logits, which stay as they are."""
    if logits.shape[0] != batch.num_rows:
        raise ValueError(f"{logits.shape[0]} rows of logits for a batch of {batch.num_rows}")
    token_ids = _choose(_shape(logits, batch), batch.draws)
    is_broken = np.array([not np.isfinite(row).all() for row in logits], np.bool_)
    return SampledTokens(token_ids, _logprobs(logits, token_ids, batch), is_broken if is_broken.any() else None)


def _shape(logits: FloatArray, batch: SamplingBatch) -> FloatArray:
    if all(step is None for step in (batch.allowed, batch.banned, batch.bias, batch.penalties)):
        return logits
    shaped = logits.copy()
    if batch.allowed is not None:
        apply_allowed(shaped, batch.allowed)
    if batch.banned is not None:
        apply_banned(shaped, batch.banned)
    if batch.bias is not None:
        apply_bias(shaped, batch.bias)
    if batch.penalties is not None:
        apply_penalties(shaped, batch.penalties)
    return shaped


def _choose(logits: FloatArray, draws: Draws | None) -> IntArray:
    if draws is None:
        return greedy(logits)
    is_drawn = draws.temperature > 0
    drawn = np.flatnonzero(is_drawn)
    pools = [candidates(logits[row], draws, int(row)) for row in drawn]
    token_ids = np.empty(len(logits), dtype=np.int32)
    token_ids[drawn] = draw(pools, draws, drawn, logits.shape[1])
    if len(drawn) < len(logits):
        token_ids[~is_drawn] = greedy(logits[~is_drawn])
    return token_ids


def candidates(logits: FloatArray, draws: Draws, row: int) -> Candidates:
    """The tokens that the filters of one row leave."""
    pool = at_temperature(logits, float(draws.temperature[row]))
    if draws.min_p is not None:
        pool = keep_min_p(pool, float(draws.min_p[row]))
    if draws.top_k is not None:
        pool = keep_top_k(pool, int(draws.top_k[row]))
    if draws.typical_p is not None:
        pool = keep_typical(pool, float(draws.typical_p[row]))
    if draws.top_p is not None:
        pool = keep_top_p(pool, float(draws.top_p[row]))
    return pool


def _logprobs(logits: FloatArray, token_ids: IntArray, batch: SamplingBatch) -> TokenLogprobs | None:
    if batch.num_logprobs is None:
        return None
    rows: npt.NDArray[np.int64] = np.flatnonzero(batch.num_logprobs >= 0)
    return token_logprobs(logits, token_ids[rows], batch.num_logprobs[rows], rows)
