"""Log-probabilities of chosen and best tokens, under the model's own distribution."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pagoda.kernels.reference.sampling.candidates import Candidates
from pagoda.kernels.sampling import FloatArray, IntArray, TokenLogprobs


def token_logprobs(
    logits: FloatArray, token_ids: npt.NDArray[Any], num_top: npt.NDArray[Any], rows: npt.NDArray[Any] | None = None
) -> TokenLogprobs:
    """Score token_ids[i] under logits[rows[i]] and list the num_top[i] best there; without `rows`, row i is meant.

    The rank counts the tokens that are better, and those as good with a lower id.
    """
    rows = np.arange(len(token_ids)) if rows is None else rows
    num_top = np.minimum(num_top, logits.shape[1])
    width = int(num_top.max(initial=0))
    chosen = np.empty(len(rows), dtype=np.float32)
    ranks = np.empty(len(rows), dtype=np.int32)
    top_token_ids = np.full((len(rows), width), -1, dtype=np.int32)
    top_values = np.full((len(rows), width), -np.inf, dtype=np.float32)
    for index, (row, token_id, count) in enumerate(zip(rows, token_ids, num_top, strict=True)):
        values = logits[row].astype(np.float64)
        log_total = _log_sum_exp(values)
        chosen[index] = values[token_id] - log_total
        ranks[index] = _rank(values, int(token_id))
        if count:
            best = Candidates(np.arange(len(values)), values).best(int(count))
            top_token_ids[index, :count] = best.token_ids
            top_values[index, :count] = best.logits - log_total
    return TokenLogprobs(_int32(rows), chosen, ranks, _int32(num_top), top_token_ids, top_values)


def _log_sum_exp(values: npt.NDArray[np.float64]) -> float:
    largest = values.max()
    return float(largest + np.log(np.exp(values - largest).sum()))


def _rank(values: npt.NDArray[np.float64], token_id: int) -> int:
    value = values[token_id]
    return 1 + int(np.count_nonzero(values > value)) + int(np.count_nonzero(values[:token_id] == value))


def _int32(values: npt.NDArray[Any]) -> IntArray:
    return np.asarray(values, dtype=np.int32)
