"""Counts that the host keeps beside the rows on the device."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from pagoda.core.plan import IntArray


@dataclass(eq=False, slots=True)
class HostCounts:
    """What the host knows of the rows without asking the device."""

    num_tokens: IntArray
    num_computed: IntArray
    num_scores: IntArray
    """Of rows that the device scores: one more than it lists; 0 for others."""
    kinds: IntArray
    occupied: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, num_rows: int) -> HostCounts:
        def zeros() -> IntArray:
            return np.zeros(num_rows, np.int32)

        return cls(zeros(), zeros(), zeros(), zeros())
