"""The tokens of one row that may still be drawn.

A filter sees one row at a time, so that no neighbour in the batch can change how its sums round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

DoubleArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Candidates:
    """Token ids and their logits. `ranked`: best first, equal logits by lower id; otherwise in order of ids."""

    token_ids: npt.NDArray[np.int64]
    logits: DoubleArray
    ranked: bool = False

    def __len__(self) -> int:
        return len(self.token_ids)

    def take(self, chosen: npt.NDArray[Any] | slice) -> Candidates:
        """A part in the order it stands in."""
        return Candidates(self.token_ids[chosen], self.logits[chosen], self.ranked)

    def best(self, count: int) -> Candidates:
        """The `count` best, ranked, without sorting the rest."""
        if self.ranked:
            return self.take(slice(count))
        pool = self
        if count < len(self):
            threshold = np.partition(self.logits, len(self) - count)[len(self) - count]
            pool = self.take(self.logits >= threshold)  # holds every tie of the last place, so that ids decide it
        order = np.argsort(-pool.logits, kind="stable")[:count]
        return Candidates(pool.token_ids[order], pool.logits[order], ranked=True)

    def probabilities(self) -> DoubleArray:
        weights: DoubleArray = np.exp(self.logits - self.logits.max())
        weights /= weights.sum()
        return weights
