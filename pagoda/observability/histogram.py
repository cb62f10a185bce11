"""Counts by size, as plain numbers: what a histogram of Prometheus is made from, and percentiles read off it."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field

# Seconds, a little denser than powers of two: fine enough to see a change of a tenth.
SECONDS = tuple(round(0.001 * 1.5**step, 6) for step in range(32))
TOKENS = tuple(float(1 << step) for step in range(18))


@dataclass
class Histogram:
    bounds: Sequence[float] = SECONDS
    """Upper ends of the buckets; what is larger than all goes into one more."""
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    @property
    def count(self) -> int:
        return sum(self.counts)

    def add(self, value: float, times: int = 1) -> None:
        self.counts[bisect.bisect_left(self.bounds, value)] += times
        self.total += value * times

    def copy(self) -> Histogram:
        found = Histogram(self.bounds)
        found.counts, found.total = self.counts.copy(), self.total
        return found

    def since(self, earlier: Histogram) -> Histogram:
        """What was added since a copy was made."""
        found = Histogram(self.bounds)
        found.counts = [now - then for now, then in zip(self.counts, earlier.counts, strict=True)]
        found.total = self.total - earlier.total
        return found

    def percentile(self, share: float) -> float | None:
        """Where so much of all lies below, taken evenly within a bucket; None where nothing was counted."""
        wanted = share * self.count
        if not self.count:
            return None
        seen = 0
        for index, count in enumerate(self.counts):
            if count and seen + count >= wanted:
                low = self.bounds[index - 1] if index else 0.0
                high = self.bounds[index] if index < len(self.bounds) else self.bounds[-1]
                return low + (high - low) * max(0.0, wanted - seen) / count
            seen += count
        return self.bounds[-1]
