"""A queue with an end."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from pagoda.server.admission import Admission
from pagoda.server.config import QueueConfig
from pagoda.server.errors import ApiError
from pagoda.server.keys import ApiKey

NOBODY = ApiKey.anonymous()


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_one_more_than_the_rows_and_the_queue_is_refused():
    admission = Admission(QueueConfig(max_queued_requests=3), num_rows=2)
    with ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(admission.enter(NOBODY, 1, 10))
        with pytest.raises(ApiError, match="queue is full: 3 requests") as caught, admission.enter(NOBODY, 1, 10):
            pass
        assert caught.value.status == 503 and caught.value.retry_after >= 1
        assert (admission.num_open, admission.num_open_tokens, admission.num_refused) == (5, 50, 1)
    assert (admission.num_open, admission.num_open_tokens) == (0, 0)


def test_waiting_tokens_are_counted_once_there_is_a_queue():
    admission = Admission(QueueConfig(max_queued_requests=100, max_queued_tokens=1000), num_rows=2)
    with ExitStack() as stack:
        stack.enter_context(admission.enter(NOBODY, 1, 5000))
        stack.enter_context(admission.enter(NOBODY, 1, 10))
        stack.enter_context(admission.enter(NOBODY, 1, 10))
        with pytest.raises(ApiError, match="prompt tokens wait"), admission.enter(NOBODY, 1, 10):
            pass


def test_the_time_to_come_back_follows_from_how_fast_requests_end():
    clock = Clock()
    admission = Admission(QueueConfig(max_queued_requests=1), num_rows=1, clock=clock)
    for _ in range(10):
        with admission.enter(NOBODY, 1, 1):
            clock.now += 2.0
    assert admission.retry_after(3) == pytest.approx(3 * 18 / 10, rel=0.01)
    clock.now += 1000
    assert admission.retry_after(3) == 1.0, "nothing is under way"


def test_a_full_queue_is_known_before_anything_is_made_of_a_request():
    admission = Admission(QueueConfig(max_queued_requests=1), num_rows=1)
    admission.check_room()
    with admission.enter(NOBODY, 2, 1), pytest.raises(ApiError, match="queue is full"):
        admission.check_room()
    admission.check_room()
    assert admission.num_open == 0 and admission.num_refused == 1


def test_a_server_that_drains_takes_nothing():
    admission = Admission(QueueConfig(), num_rows=1)
    admission.is_draining = True
    with pytest.raises(ApiError, match="shutting down") as caught, admission.enter(NOBODY, 1, 1):
        pass
    assert caught.value.status == 503 and caught.value.retry_after


def test_a_refused_key_leaves_the_counts_alone():
    admission = Admission(QueueConfig(), num_rows=1)
    key = ApiKey("a", max_concurrency=1)
    with admission.enter(key, 1, 1):
        with pytest.raises(ApiError, match="at once"), admission.enter(key, 1, 1):
            pass
        assert admission.num_open == 1
    assert admission.num_open == 0 and key.num_open == 0


def test_a_call_takes_no_more_than_fills_the_rows_and_its_key_pays_for_all_of_it():
    assert Admission(QueueConfig(max_queued_requests=100), num_rows=8).num_at_once == 16
    assert Admission(QueueConfig(max_queued_requests=3), num_rows=8).num_at_once == 11
    assert Admission(QueueConfig(max_queued_requests=9999), num_rows=999).num_at_once == 256
    key = ApiKey(name="k", tokens_per_minute=100)
    admission = Admission(QueueConfig(), num_rows=8)
    with admission.enter(key, 16, 60, spent=90):
        assert (admission.num_open, admission.num_open_tokens) == (16, 60)
    with pytest.raises(ApiError, match="100 tokens a minute"), admission.enter(key, 1, 11):
        pass
