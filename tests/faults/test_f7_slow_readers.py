"""F7 in small: what the script measures, but for the times."""

from __future__ import annotations

import pytest

from tests.faults.f7_slow_readers import MOST_BUFFERED, measure


@pytest.mark.slow
def test_slow_readers_are_paused_and_those_that_stall_are_let_go():
    numbers = measure(num_readers=12, num_tokens=4000, patience=12.0, num_quick=2, num_rounds=1)
    assert numbers.num_paused == 12
    assert 0 < numbers.buffered_bytes <= MOST_BUFFERED
    assert numbers.num_whole == 2 and numbers.num_let_go == 10
    assert numbers.pages_left == 0 and numbers.fds_left == 0
