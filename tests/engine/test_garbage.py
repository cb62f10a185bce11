"""The collector rests in the midst of a batch, and nowhere else."""

from __future__ import annotations

import gc
import weakref

import pytest

from pagoda.engine.garbage import TURNS_BETWEEN, CollectorAtRest


class Ring:
    def __init__(self) -> None:
        self.itself = self


def test_it_rests_and_wakes_again():
    assert gc.isenabled()
    with pytest.raises(KeyError), CollectorAtRest():
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()


def test_rings_of_young_objects_do_not_pile_up():
    with CollectorAtRest() as collector:
        ring = weakref.ref(Ring())
        for _ in range(TURNS_BETWEEN - 1):
            collector.pass_turn()
        assert ring() is not None
        collector.pass_turn()
        assert ring() is None
        ring = weakref.ref(Ring())
        collector.look()
        assert ring() is None


def test_whoever_switched_it_off_finds_it_off():
    gc.disable()
    try:
        with CollectorAtRest() as collector:
            ring = weakref.ref(Ring())
            collector.look()
            assert ring() is not None
        assert not gc.isenabled()
    finally:
        gc.enable()
