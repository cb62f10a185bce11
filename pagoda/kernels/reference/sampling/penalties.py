"""Penalties for tokens that were seen before, applied in place to the logits."""

from __future__ import annotations

import numpy as np

from pagoda.kernels.sampling import FloatArray, Penalties


def apply_penalties(logits: FloatArray, penalties: Penalties) -> None:
    """Repetition scales a token of the prompt or the output towards less likely; the others subtract for the output."""
    rows, token_ids, counts = penalties.rows, penalties.token_ids, penalties.output_counts
    values = logits[rows, token_ids]
    repetition = penalties.repetition[rows]
    values = np.where(values > 0, values / repetition, values * repetition)
    values -= penalties.frequency[rows] * counts
    values -= penalties.presence[rows] * (counts > 0)
    logits[rows, token_ids] = values
