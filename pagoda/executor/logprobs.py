"""Log-probabilities as records, by entry of the plan."""

from __future__ import annotations

from pagoda.core.result import TokenLogprob
from pagoda.executor.rows import Rows
from pagoda.kernels.sampling import SampledTokens, TokenLogprobs


def logprobs_by_entry(sampled: SampledTokens, drawing: Rows) -> dict[int, tuple[TokenLogprob, ...]]:
    found = sampled.logprobs
    if found is None:
        return {}
    return {
        int(drawing[row]): (token_logprob(found, index, int(sampled.token_ids[row])),)
        for index, row in enumerate(found.rows.tolist())
    }


def token_logprob(found: TokenLogprobs, index: int, token_id: int) -> TokenLogprob:
    count = int(found.num_top[index])
    return TokenLogprob(
        token_id,
        float(found.chosen[index]),
        int(found.ranks[index]),
        tuple(found.top_token_ids[index, :count].tolist()),
        tuple(found.top_values[index, :count].tolist()),
    )
