"""Keep the smallest set of best tokens whose mass reaches top_p."""

from __future__ import annotations

import numpy as np

from pagoda.kernels.reference.sampling.candidates import Candidates

# Ranking a few tokens nearly always suffices; the rest of the vocabulary is sorted only where it does not.
FIRST_RANKED = 256


def keep_top_p(candidates: Candidates, top_p: float) -> Candidates:
    """A token stays while the mass of those ranked before it is below top_p; the best one always stays."""
    if top_p >= 1.0:
        return candidates
    largest = candidates.logits.max()
    wanted = top_p * np.exp(candidates.logits - largest).sum()
    num_ranked = FIRST_RANKED
    while True:
        ranked = candidates.best(num_ranked)
        mass = np.cumsum(np.exp(ranked.logits - largest))
        if mass[-1] >= wanted or len(ranked) == len(candidates):
            return ranked.take(slice(int(np.searchsorted(mass, wanted)) + 1))
        num_ranked *= 8
