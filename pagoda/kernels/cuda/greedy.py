"""The best token of each row of logits."""

from __future__ import annotations

import torch

BROKEN = -1


def greedy(out: torch.Tensor, logits: torch.Tensor) -> None:
    """out[r] = the best token of logits[r], of equal ones the lowest; -1 where the best is no finite number."""
    best, ids = logits.max(dim=-1)
    out.copy_(torch.where(best.isfinite(), ids, BROKEN))
