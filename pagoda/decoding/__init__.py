"""Logits to tokens, on the worker."""

from __future__ import annotations

from pagoda.decoding.prompt_scores import prompt_logprobs
from pagoda.decoding.sampler import Feature, SamplingState, sampling_state_bytes
from pagoda.decoding.seeds import SeedSource

__all__ = ["Feature", "SamplingState", "SeedSource", "prompt_logprobs", "sampling_state_bytes"]
