"""What a row asks of whoever draws its tokens, and what kind of step that makes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

import msgspec

from pagoda.core.plan import RowPayload
from pagoda.core.sampling_params import SamplingParams
from pagoda.decoding import Feature, TokenRules, features_of, token_rules

FILTERS = Feature.TOP_K | Feature.TOP_P | Feature.MIN_P
MASKS = Feature.ALLOWED | Feature.BANNED


class DrawKind(IntEnum):
    """A step is of the last kind that one of its rows is; each does what those before it do, and more."""

    GREEDY = 0
    DRAWN = 1
    FILTERED = 2
    SCORED = 3
    """Log-probabilities are wanted."""
    RULED = 4
    """Tokens are allowed, banned, favoured or penalised."""
    TYPICAL = 5
    """Tokens fall out by typical_p."""


def draw_kind(features: int) -> DrawKind:
    if features & Feature.TYPICAL_P:
        return DrawKind.TYPICAL
    if features & (MASKS | Feature.BIAS | Feature.PENALTIES):
        return DrawKind.RULED
    if features & Feature.LOGPROBS:
        return DrawKind.SCORED
    if features & FILTERS:
        return DrawKind.FILTERED
    return DrawKind.DRAWN if features else DrawKind.GREEDY


@dataclass(frozen=True, eq=False)
class Wishes:
    """Of a row's tenant."""

    kind: DrawKind
    sampling: SamplingParams
    num_prompt_tokens: int
    rules: TokenRules
    features: int
    """Bits of `Feature`."""
    num_scores: int
    """One more than are listed of the best tokens; 0: none is scored."""

    @classmethod
    def of(cls, payload: RowPayload, end_token_ids: Iterable[int], vocab_size: int) -> Wishes:
        sampling, count = payload.sampling, payload.num_prompt_tokens
        rules = token_rules(sampling, end_token_ids, count)
        features = features_of(sampling, rules)
        num_scores = 1 + min(sampling.logprobs or 0, vocab_size) if features & Feature.LOGPROBS else 0
        return cls(draw_kind(features), sampling, count, rules, features, num_scores)

    @property
    def drawn_with(self) -> SamplingParams:
        """Without what the device keeps in a record of its own."""
        if self.kind >= DrawKind.SCORED:
            return msgspec.structs.replace(self.sampling, **_UNRULED)
        return self.sampling


_UNRULED = {
    name: getattr(SamplingParams(), name)
    for name in (
        "min_tokens",
        "logprobs",
        "presence_penalty",
        "frequency_penalty",
        "repetition_penalty",
        "logit_bias",
        "allowed_token_ids",
        "banned_token_ids",
    )
}
