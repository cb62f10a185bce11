"""Percentiles against the sorted values themselves."""

from __future__ import annotations

import bisect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.observability.histogram import SECONDS, Histogram


@given(st.lists(st.floats(0.0, 100.0), min_size=1, max_size=200), st.sampled_from([0.5, 0.95, 0.99]))
def test_a_percentile_lies_in_the_bucket_of_the_true_one(values: list[float], share: float) -> None:
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    true = sorted(values)[max(0, -(-round(share * 1000) * len(values) // 1000) - 1)]
    found = histogram.percentile(share)
    assert found is not None
    place = bisect.bisect_left(SECONDS, true)
    low, high = SECONDS[place - 1] if place else 0.0, SECONDS[place]
    assert low <= found <= high * (1 + 1e-9)


def test_what_was_added_since_a_copy():
    histogram = Histogram()
    histogram.add(0.001, 5)
    before = histogram.copy()
    assert histogram.since(before).count == 0 and histogram.since(before).percentile(0.5) is None
    histogram.add(10.0, 3)
    news = histogram.since(before)
    assert news.count == 3 and news.total == pytest.approx(30.0)
    assert news.percentile(0.01) is not None and news.percentile(0.01) > 5.0  # type: ignore[operator]
    assert before.count == 5, "a copy stays as it was"
