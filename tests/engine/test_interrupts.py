"""Ctrl-C is held back while a step runs, and never lost."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from pagoda.engine.interrupts import interrupts_deferred


def press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_it_comes_when_the_block_is_done():
    done = []
    with pytest.raises(KeyboardInterrupt), interrupts_deferred():
        press_ctrl_c()
        press_ctrl_c()
        done.append("the step")
    assert done == ["the step"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_blocks_may_lie_inside_each_other():
    done = []
    with pytest.raises(KeyboardInterrupt), interrupts_deferred():
        with interrupts_deferred():
            press_ctrl_c()
            done.append("inner")
        done.append("outer")
    assert done == ["inner", "outer"]


def test_an_error_of_the_block_goes_first():
    with pytest.raises(ValueError, match="mine"), interrupts_deferred():
        raise ValueError("mine")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_callers_own_handler_is_called_and_kept():
    seen: list[int] = []

    def mine(number: int, frame: object) -> None:
        seen.append(number)

    before = signal.signal(signal.SIGINT, mine)
    try:
        with interrupts_deferred():
            press_ctrl_c()
            assert seen == []
        assert seen == [signal.SIGINT]
        assert signal.getsignal(signal.SIGINT) is mine
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_and_ignored_signals_are_left_alone():
    passed = []

    def elsewhere() -> None:
        with interrupts_deferred():
            passed.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert passed == [signal.default_int_handler]
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts_deferred():
            press_ctrl_c()
    finally:
        signal.signal(signal.SIGINT, before)
