"""The roofline on numbers that can be worked out in the head."""

from __future__ import annotations

import pytest

from benchmarks.cpu.roofline import Demand, Peaks, roofline

DEMAND = Demand(weight_bytes=1000, num_parameters=2000, cache_bytes_per_token=1, attention_width=10)
PEAKS = Peaks(threads=2, bytes_per_second=1e6, f32_per_second=16e6, int8_per_second=64e6)


def test_one_stream_is_bound_by_memory() -> None:
    """1,000 bytes of weights and no context at 1 MB/s: 1 ms; 4,000 operations at 16 M/s: 0.25 ms."""
    assert roofline(DEMAND, PEAKS, 1, 0) == pytest.approx(1000)


def test_many_streams_are_bound_by_arithmetic() -> None:
    """8 x 4,000 operations at 16 M/s: 2 ms for 8 tokens."""
    assert roofline(DEMAND, PEAKS, 8, 0) == pytest.approx(4000)
    assert roofline(DEMAND, PEAKS, 8, 0, "int8") == pytest.approx(8000)


def test_context_costs_memory_and_arithmetic() -> None:
    assert roofline(DEMAND, PEAKS, 1, 1000) == pytest.approx(1 / 2.75e-3)  # 4,000 + 40,000 operations
    assert roofline(DEMAND, PEAKS, 1, 1000, "int8") == pytest.approx(1 / 2e-3)  # 2,000 bytes
