"""Where the seed of a request comes from that brings none."""

from __future__ import annotations

import hashlib
import secrets

from pagoda.core.sampling_params import SamplingParams

NUM_SEED_BITS = 63  # never negative, so that a logged seed can be given back as `SamplingParams.seed`


class SeedSource:
    """Unseeded requests draw from the system's entropy, or, under an engine seed, by their order of arrival."""

    def __init__(self, engine_seed: int | None = None) -> None:
        self._engine_seed = engine_seed
        self._num_drawn = 0

    def seed_for(self, params: SamplingParams) -> int:
        """The request's own seed, or a fresh one, which the caller logs."""
        if params.seed is not None:
            return params.seed
        if self._engine_seed is None:
            return secrets.randbits(NUM_SEED_BITS)
        name = f"{self._engine_seed}:{self._num_drawn}".encode()
        self._num_drawn += 1
        digest = hashlib.sha256(name).digest()
        return int.from_bytes(digest[:8], "little") >> (64 - NUM_SEED_BITS)
