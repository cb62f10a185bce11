"""Scores of the prompt itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pagoda.kernels.reference.sampling import token_logprobs
from pagoda.kernels.sampling import FloatArray, TokenLogprobs


def prompt_logprobs(logits: FloatArray, next_token_ids: npt.NDArray[Any], num_logprobs: int) -> TokenLogprobs:
    """Score next_token_ids[i], the prompt token that follows position i, under logits[i]; entry i belongs to it."""
    return token_logprobs(logits, next_token_ids, np.full(len(next_token_ids), num_logprobs))
