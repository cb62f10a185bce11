"""Rates and windows from samples of counters."""

from __future__ import annotations

import pytest

from pagoda.engine.remote import EngineState
from pagoda.observability.requests import RequestStatistics
from pagoda.server.history import NUM_SAMPLES, History


def test_rates_are_differences_by_the_second():
    statistics = RequestStatistics()
    history = History(statistics, EngineState())
    history.take(10.0)
    statistics.num_new_tokens += 50
    history.take(12.0)
    statistics.num_prompt_tokens += 7
    history.take(13.0)
    first, second = history.rates(15.0)
    assert (first.new_tokens, first.prompt_tokens, first.seconds_ago) == (25.0, 0.0, 3.0)
    assert (second.new_tokens, second.prompt_tokens, second.seconds_ago) == (0.0, 7.0, 2.0)


def test_a_window_forgets_what_went_before_it():
    statistics = RequestStatistics()
    history = History(statistics, EngineState())
    statistics.first_token.add(10.0, 99)
    for second in range(100):
        history.take(float(second))
    statistics.first_token.add(0.1)
    latest, before = history.since(100.0, 60.0)
    assert before.time == 40.0
    assert latest.first_token.since(before.first_token).count == 1
    assert latest.first_token.since(before.first_token).percentile(0.5) == pytest.approx(0.1, rel=0.5)


def test_without_samples_nothing_happened():
    history = History(RequestStatistics(), EngineState())
    latest, before = history.since(5.0)
    assert latest is before and history.rates(5.0) == []


def test_it_is_bounded():
    history = History(RequestStatistics(), EngineState())
    for second in range(3 * NUM_SAMPLES):
        history.take(float(second))
    assert len(history.rates(0.0)) == NUM_SAMPLES
