"""Logits to tokens, on the worker."""

from __future__ import annotations

from pagoda.decoding.prompt_scores import prompt_logprobs
from pagoda.decoding.sampler import Feature, SamplingState, features_of, sampling_state_bytes
from pagoda.decoding.seeds import SeedSource
from pagoda.decoding.token_rules import TokenRules, token_rules

__all__ = [
    "Feature",
    "SamplingState",
    "SeedSource",
    "TokenRules",
    "features_of",
    "prompt_logprobs",
    "sampling_state_bytes",
    "token_rules",
]
