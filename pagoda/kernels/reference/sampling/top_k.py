"""Keep the k best tokens."""

from __future__ import annotations

from pagoda.kernels.reference.sampling.candidates import Candidates


def keep_top_k(candidates: Candidates, top_k: int) -> Candidates:
    """Exactly k, where there are that many: of equal logits at the border the lower ids stay."""
    if top_k == 0 or top_k >= len(candidates):
        return candidates
    return candidates.best(top_k)
