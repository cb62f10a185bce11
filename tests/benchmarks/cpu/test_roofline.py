"""The roofline on numbers that can be worked out in the head."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.cpu.roofline import roofline
from pagoda.bench.demand import Demand, Matrices
from pagoda.core.cache import CacheGroup
from pagoda.kernels.peaks import Peaks

GROUPS = (CacheGroup("full", (0,), 1, 16),)
BODY, HEAD = Matrices(900, Counter({"int8": 1500})), Matrices(100, Counter({"f32": 500}))
PEAKS = Peaks(1e6, {"f32": 16e6, "int8": 64e6})


def limit(num_streams: int, context: int, compute: str = "f32", cached_bytes: int = 1) -> float:
    demand = Demand(BODY, HEAD, (cached_bytes,), (40,), "f32")
    return roofline(demand, GROUPS, PEAKS, num_streams, context, compute)  # type: ignore[arg-type]


def test_one_stream_is_bound_by_memory() -> None:
    """1,000 bytes of weights and a context of one that takes none at 1 MB/s: 1 ms; 4,040 operations at 16 M/s: less."""
    assert limit(1, 1, cached_bytes=0) == pytest.approx(1000)


def test_many_streams_are_bound_by_arithmetic() -> None:
    """8 x (4,000 + 40) operations at 16 M/s: 2.02 ms for 8 tokens."""
    assert limit(8, 1) == pytest.approx(8 / 2.02e-3)
    assert limit(8, 1, "int8") == pytest.approx(8 / 1.008e-3)


def test_context_costs_memory_and_arithmetic() -> None:
    assert limit(1, 1000) == pytest.approx(1 / 2.75e-3)  # 4,000 + 40,000 operations
    assert limit(1, 1000, "int8") == pytest.approx(1 / 2e-3)  # 2,000 bytes
