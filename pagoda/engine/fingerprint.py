"""What an engine's numbers depend on, in one word: two answers with the same fingerprint came from the same sums."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pagoda.core.version import own_version
from pagoda.kernels.cpu.library import LIBRARY
from pagoda.weights.identity import weights_digest

if TYPE_CHECKING:
    from pagoda.engine.build import Engine

DIGEST_LENGTH = 10


@dataclass(frozen=True)
class Backend:
    """What computes, once it was chosen: no field says "auto"."""

    device: str
    """cpu, or the name of a GPU."""
    kernels: str
    """An instruction set of the native kernels, numpy, or triton."""
    compute: str
    """What weights are multiplied in."""
    libraries: str = ""
    """Whose they are, with their versions; empty: our own library."""


def native_build() -> str:
    return hashlib.sha256(LIBRARY.read_bytes()).hexdigest()


def fingerprint_of(engine: Engine) -> str:
    """Says version, device, kernels, compute, the format of most weights and of the cache; a digest says the rest.

    It is the same after a restart, and on another machine that computes in the same way.
    """
    backend = engine.backend
    told = [own_version(), backend.device, backend.kernels, backend.compute]
    told += [stored_format(engine), f"kv_{engine.kv_cache_type}"]
    untold = [backend.libraries or native_build(), weights_digest(engine.checkpoint), str(engine.config.block_size)]
    if engine.config.device == "cuda":  # there the sums depend on how many rows are computed together
        untold += [str(engine.config.num_rows), str(engine.config.max_num_batched_tokens)]
    digest = hashlib.sha256("\n".join(told + untold).encode()).hexdigest()[:DIGEST_LENGTH]
    return "-".join(["pagoda", *told, digest]).lower().replace(" ", "_")


def stored_format(engine: Engine) -> str:
    """Of the most numbers in the file."""
    counts: Counter[str] = Counter()
    for weight in engine.model.weights():
        counts[weight.format] += math.prod(weight.shape)
    return max(counts, key=counts.__getitem__)
