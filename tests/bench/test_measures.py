from __future__ import annotations

import numpy as np
import pytest

from pagoda.bench.client import CUT_OFF
from pagoda.bench.measures import Spread, measure, parse_slo
from pagoda.core.errors import InvalidRequest
from tests.bench.runs import outcome, run_of


def test_times_of_one_request() -> None:
    found = measure(run_of([outcome(1.0, [1.5, 1.7, 2.1], ended=2.2)]))
    assert found.ttft is not None and found.ttft.p50 == pytest.approx(0.5)
    assert found.itl is not None and found.itl.max == pytest.approx(0.4) and found.itl.mean == pytest.approx(0.3)
    assert found.tpot is not None and found.tpot.p50 == pytest.approx(0.3)
    assert found.e2e is not None and found.e2e.p50 == pytest.approx(1.2)


def test_percentiles_are_numpys() -> None:
    rng = np.random.default_rng(1)
    firsts, spans = rng.lognormal(size=500), rng.lognormal(size=500)
    outcomes = [outcome(0.0, [first, first + span]) for first, span in zip(firsts, spans, strict=True)]
    found = measure(run_of(outcomes, ended=1000.0))
    for spread, values in ((found.ttft, firsts), (found.itl, spans), (found.e2e, firsts + spans)):
        expected = [*np.percentile(values, (50, 95, 99)), values.mean(), values.max()]
        assert spread is not None
        assert [spread.p50, spread.p95, spread.p99, spread.mean, spread.max] == pytest.approx(expected)


def test_rates_count_what_came_in_the_measured_time() -> None:
    inside = outcome(0.0, [1.0, 2.0, 3.0, 4.0], num_prompt=20, num_cached=8)
    across = outcome(5.0, [9.0, 11.0], num_prompt=30)
    found = measure(run_of([inside, across], ended=10.0))
    assert found.output_tokens_per_second == pytest.approx(5 / 10), "the token at 11 came too late"
    assert found.requests_per_second == pytest.approx(1 / 10)
    assert found.input_tokens_per_second == pytest.approx(20 / 10)
    assert (found.num_ok, found.num_output_tokens, found.num_cached_tokens) == (2, 6, 8)
    assert found.mean_running == pytest.approx((4 + 5) / 10)


def test_pieces_of_several_tokens_count_as_many() -> None:
    found = measure(run_of([outcome(0.0, [1.0, 2.0, 3.0], num_output=12)]))
    assert found.output_tokens_per_second == pytest.approx(12 / 10)
    assert found.tpot is not None and found.tpot.p50 == pytest.approx(2 / 11)


def test_failures_are_told_apart_and_kept_out_of_the_times() -> None:
    slow = outcome(0.0, [9.0], error="timeout")
    full = [outcome(0.0, [], ended=0.1, error="HTTP 503") for _ in range(2)]
    cut = outcome(0.0, [1.0], error=CUT_OFF)
    found = measure(run_of([slow, *full, cut, outcome(0.0, [2.0])]))
    assert [(failure.kind, failure.count) for failure in found.failures] == [("HTTP 503", 2), ("timeout", 1)]
    assert found.failures[0].example == "about HTTP 503"
    assert (found.num_requests, found.num_ok) == (4, 1)
    assert found.ttft == Spread.of([2.0])
    assert found.output_tokens_per_second == pytest.approx(3 / 10), "tokens that came are tokens, whole answer or not"


def test_goodput_counts_what_keeps_every_limit() -> None:
    good = outcome(0.0, [0.4, 0.44, 0.48])
    late = outcome(0.0, [0.6, 0.61])
    halting = outcome(0.0, [0.1, 0.3])
    failed = outcome(0.0, [0.1], error="cut short")
    found = measure(run_of([good, late, halting, failed]), {"ttft": 0.5, "itl": 0.05}).goodput
    assert found is not None
    assert found.share == pytest.approx(1 / 4)
    assert found.requests_per_second == pytest.approx(1 / 10) and found.tokens_per_second == pytest.approx(3 / 10)


@pytest.mark.parametrize(("slo", "kept"), [({"e2e": 0.5}, 1.0), ({"e2e": 0.4}, 0.0), ({"tpot": 0.04}, 1.0)])
def test_other_limits(slo: dict[str, float], kept: float) -> None:
    found = measure(run_of([outcome(0.0, [0.4, 0.43, 0.46], ended=0.5)]), slo).goodput
    assert found is not None and found.share == kept


def test_a_run_without_any_answer() -> None:
    found = measure(run_of([]), {"ttft": 1.0})
    assert found.ttft is found.itl is found.e2e is None
    assert found.output_tokens_per_second == 0 and found.goodput is not None and found.goodput.share == 0


def test_reading_an_slo() -> None:
    assert parse_slo(["ttft=0.5", "itl=0.05"]) == {"ttft": 0.5, "itl": 0.05}
    for word in ("speed=1", "ttft", "ttft=", "ttft=x", "ttft=0", "ttft=-1"):
        with pytest.raises(InvalidRequest, match="--slo"):
            parse_slo([word])
