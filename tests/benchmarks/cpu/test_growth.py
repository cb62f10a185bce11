"""Which steps count as full speed."""

from __future__ import annotations

import pytest

from benchmarks.cpu.growth import full_speed


def test_only_steps_between_full_ones_count() -> None:
    """Three streams: two steps while prompts are read, then full steps of 1 s and 2 s, then one stream is done."""
    ends = [(0.0, 1), (5.0, 2), (6.0, 3), (7.0, 3), (9.0, 3), (9.5, 2)]
    assert full_speed(ends, 3) == pytest.approx(2 * 3 / 3.0)
