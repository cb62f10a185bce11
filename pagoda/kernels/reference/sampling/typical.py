"""Locally typical sampling (Meister et al., 2022): keep the tokens whose surprise is nearest the expected one."""

from __future__ import annotations

import numpy as np

from pagoda.kernels.reference.sampling.candidates import Candidates


def keep_typical(candidates: Candidates, typical_p: float) -> Candidates:
    """The smallest such set whose mass reaches typical_p. The most likely token may fall out."""
    if typical_p >= 1.0:
        return candidates
    probabilities = candidates.probabilities()
    surprise = -np.log(np.maximum(probabilities, np.finfo(np.float64).tiny))
    entropy = (probabilities * surprise).sum()
    order = np.argsort(np.abs(surprise - entropy), kind="stable")
    mass = np.cumsum(probabilities[order])
    num_kept = int(np.searchsorted(mass, typical_p)) + 1
    return candidates.take(np.sort(order[:num_kept]))
