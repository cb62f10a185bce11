"""Divide the logits of a row by its temperature."""

from __future__ import annotations

import numpy as np

from pagoda.kernels.reference.sampling.candidates import Candidates
from pagoda.kernels.sampling import FloatArray


def at_temperature(logits: FloatArray, temperature: float) -> Candidates:
    """Every token of a row that is not ruled out; where none is left, the argmax alone, so that a draw has a result."""
    token_ids = np.flatnonzero(logits > -np.inf)
    if not len(token_ids):
        return Candidates(np.array([logits.argmax()]), np.zeros(1))
    return Candidates(token_ids, logits[token_ids].astype(np.float64) / temperature)
