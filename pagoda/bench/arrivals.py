"""When requests are sent: as many under way as wanted, or so many a second whatever becomes of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from pagoda.core.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Pace:
    """Exactly one of the two is given."""

    concurrency: int | None = None
    """Clients that each send their next request when the last one is answered."""
    rate: float | None = None
    """Requests a second, sent whether or not earlier ones are answered."""
    burstiness: float = 1.0
    """Of a rate: 1 is a Poisson process, above 1 comes in bursts, 0 is a steady beat."""

    def __post_init__(self) -> None:
        if (self.concurrency is None) == (self.rate is None):
            raise InvalidRequest("--rate", "give either --rate or --concurrency")
        if self.concurrency is not None and self.concurrency < 1:
            raise InvalidRequest("--concurrency", f"must be at least 1, not {self.concurrency}")
        if self.rate is not None and not self.rate > 0:
            raise InvalidRequest("--rate", f"must be above 0, not {self.rate}")
        if not self.burstiness >= 0:
            raise InvalidRequest("--burstiness", f"must not be negative, not {self.burstiness}")

    def times(self, rng: random.Random) -> Iterator[float]:
        """Seconds from the beginning at which requests are due."""
        assert self.rate is not None
        mean = 1 / self.rate
        due = 0.0
        while True:
            yield due
            # Gamma distributed gaps: their squared variation is the burstiness, their mean stays.
            due += rng.gammavariate(1 / self.burstiness, mean * self.burstiness) if self.burstiness else mean

    def __str__(self) -> str:
        if self.concurrency is not None:
            return f"{self.concurrency} at a time"
        kind = {0.0: ", evenly", 1.0: ", Poisson"}.get(self.burstiness, f", burstiness {self.burstiness:g}")
        return f"{self.rate:g} a second{kind}"
