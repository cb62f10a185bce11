"""Which tokens a sequence may use and which it favours, as arrays made once when it gets its row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from pagoda.core.sampling_params import SamplingParams
from pagoda.kernels.sampling import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class TokenRules:
    """`banned_early` holds at the positions before `first_stop_position`, `banned` from there on."""

    allowed: IntArray
    banned: IntArray
    banned_early: IntArray
    first_stop_position: int
    bias_token_ids: IntArray
    bias_values: FloatArray

    def banned_at(self, position: int) -> IntArray:
        return self.banned_early if position < self.first_stop_position else self.banned


def token_rules(params: SamplingParams, eos_token_ids: Iterable[int], prompt_len: int) -> TokenRules:
    banned = set(params.banned_token_ids)
    stop = set(params.stop_token_ids).union(() if params.ignore_eos else eos_token_ids)
    banned_early = banned | stop if params.min_tokens > 0 else banned
    if params.allowed_token_ids is not None and banned_early.issuperset(params.allowed_token_ids):
        banned_early = banned  # only stop tokens are allowed: the sequence must be able to say one
    bias = params.logit_bias or {}
    return TokenRules(
        allowed=_ids(params.allowed_token_ids or ()),
        banned=_ids(banned),
        banned_early=_ids(banned_early),
        first_stop_position=prompt_len + params.min_tokens,
        bias_token_ids=np.fromiter(bias.keys(), dtype=np.int32, count=len(bias)),
        bias_values=np.fromiter(bias.values(), dtype=np.float32, count=len(bias)),
    )


def _ids(token_ids: Iterable[int]) -> IntArray:
    return np.array(sorted(token_ids), dtype=np.int32)
