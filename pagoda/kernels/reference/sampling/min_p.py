"""Keep the tokens at least min_p times as likely as the best one."""

from __future__ import annotations

import math

from pagoda.kernels.reference.sampling.candidates import Candidates


def keep_min_p(candidates: Candidates, min_p: float) -> Candidates:
    if min_p == 0.0:
        return candidates
    return candidates.take(candidates.logits >= candidates.logits.max() + math.log(min_p))
