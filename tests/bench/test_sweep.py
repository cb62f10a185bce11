from __future__ import annotations

import msgspec
import pytest

from pagoda.bench.measures import measure
from pagoda.bench.sweep import Level, parse_sweep, saturation
from pagoda.core.errors import InvalidRequest
from tests.bench.runs import outcome, run_of


def levels(rates: dict[int, float], latency: float = 1.0, slo: dict[str, float] | None = None) -> list[Level]:
    """At each concurrency so many tokens a second, with answers that take the longer the more clients there are."""
    found = []
    for value, rate in rates.items():
        measures = measure(run_of([outcome(0.0, [latency * value])]), slo)
        found.append(Level(value, msgspec.structs.replace(measures, output_tokens_per_second=float(rate))))
    return found


def test_the_knee_is_where_throughput_stops_growing() -> None:
    found = saturation(levels({1: 100, 2: 190, 4: 350, 8: 500, 16: 510, 32: 505}))
    assert found.value == 8
    assert "500 tokens/s here, 510" in found.reason and "p95 latency" in found.reason


def test_a_dent_on_the_way_up_is_no_knee() -> None:
    assert saturation(levels({1: 100, 2: 99, 4: 180, 8: 300, 16: 301})).value == 8


def test_throughput_that_falls_again() -> None:
    assert saturation(levels({1: 100, 2: 150, 4: 90})).value == 2


def test_growth_to_the_end_is_said() -> None:
    found = saturation(levels({1: 100, 2: 200, 4: 400}))
    assert found.value is None and "not reached" in found.reason and "+100%" in found.reason


def test_one_level_has_no_knee() -> None:
    assert saturation(levels({4: 100})).value is None


def test_nothing_answered_is_no_knee() -> None:
    assert saturation(levels({1: 0, 2: 0})).value is None


def test_the_highest_level_within_the_slo() -> None:
    found = saturation(levels({1: 100, 2: 200, 4: 300, 8: 400}, latency=0.1, slo={"e2e": 0.25}))
    assert found.best_within_slo == 2


def test_reading_a_sweep() -> None:
    name, steps = parse_sweep("concurrency=4,1,2", 1.0)
    assert name == "concurrency" and [pace.concurrency for _, pace in steps] == [1, 2, 4]
    name, steps = parse_sweep("rate=0.5,2", 0.0)
    assert name == "rate" and [(value, pace.rate, pace.burstiness) for value, pace in steps] == [
        (0.5, 0.5, 0),
        (2, 2, 0),
    ]


@pytest.mark.parametrize(
    "text", ["", "speed=1", "concurrency", "concurrency=", "concurrency=1,x", "concurrency=1.5", "rate=0"]
)
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_sweep(text, 1.0)
