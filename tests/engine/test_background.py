"""Work beside a block: both are done at its end, and no error is lost."""

from __future__ import annotations

import sys
import threading

import pytest

from pagoda.engine.background import Background


def test_both_run_at_once_and_both_are_done():
    started, seen = threading.Event(), threading.Event()
    before = sys.getswitchinterval()

    def work() -> None:
        started.set()
        assert seen.wait(10)

    with Background(work):
        assert started.wait(10)
        seen.set()
    assert sys.getswitchinterval() == before


def test_an_error_of_the_function_is_raised_at_the_end_of_the_block():
    done = []

    def work() -> None:
        raise MemoryError("too much")

    with pytest.raises(MemoryError, match="too much"), Background(work):
        done.append("the block")
    assert done == ["the block"]


def test_an_error_of_the_block_goes_first():
    def work() -> None:
        raise MemoryError("too much")

    with pytest.raises(ValueError, match="mine"), Background(work):
        raise ValueError("mine")
