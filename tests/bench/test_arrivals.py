from __future__ import annotations

import itertools
import random
import statistics

import pytest

from pagoda.bench.arrivals import Pace
from pagoda.core.errors import InvalidRequest


def gaps(burstiness: float, count: int = 6000) -> list[float]:
    pace = Pace(rate=20.0, burstiness=burstiness)
    times = itertools.islice(pace.times(random.Random(5)), count)
    return [late - early for early, late in itertools.pairwise(times)]


@pytest.mark.parametrize("burstiness", [0.0, 0.5, 1.0, 4.0])
def test_gaps_have_the_mean_of_the_rate_and_the_asked_variation(burstiness: float) -> None:
    found = gaps(burstiness)
    assert statistics.mean(found) == pytest.approx(1 / 20, rel=0.1)
    variation = statistics.pvariance(found) / statistics.mean(found) ** 2
    assert variation == pytest.approx(burstiness, rel=0.2, abs=1e-9)


def test_the_first_request_is_due_at_once() -> None:
    assert next(Pace(rate=1.0).times(random.Random(0))) == 0.0


@pytest.mark.parametrize(
    "settings",
    [{}, {"rate": 1.0, "concurrency": 1}, {"rate": 0.0}, {"concurrency": 0}, {"rate": 1.0, "burstiness": -1.0}],
)
def test_nonsense_is_refused(settings: dict[str, float]) -> None:
    with pytest.raises(InvalidRequest):
        Pace(**settings)  # type: ignore[arg-type]


def test_in_words() -> None:
    assert str(Pace(concurrency=4)) == "4 at a time"
    assert str(Pace(rate=0.5)) == "0.5 a second, Poisson"
    assert str(Pace(rate=2, burstiness=0)) == "2 a second, evenly"
