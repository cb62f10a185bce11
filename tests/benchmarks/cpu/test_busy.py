"""Readings of /proc in made-up texts."""

from __future__ import annotations

import pytest

from benchmarks.cpu.busy import TICKS, Reading, between, parse_stat, process_seconds, session_of

STAT = "cpu  100 20 30 4000 5 6 7 80 90 10\ncpu0 50 10 15 2000 2 3 4 40 45 5\n"
PROCESS = "42 (a (strange) name) S 1 40 41 0 -1 4194560 100 0 0 0 300 50 7 3 20 0 4 0 1000 5000 600"


def test_parse_stat() -> None:
    busy, stolen = parse_stat(STAT)
    assert busy * TICKS == pytest.approx(100 + 20 + 30 + 6 + 7)  # not idle, not waiting for a disk
    assert stolen * TICKS == pytest.approx(80)


def test_process_seconds_count_ended_children() -> None:
    assert process_seconds(PROCESS) * TICKS == pytest.approx(300 + 50 + 7 + 3)


def test_session() -> None:
    assert session_of(PROCESS) == 41


def test_between() -> None:
    found = between(Reading(10.0, 100.0, 5.0, 50.0), Reading(20.0, 118.0, 6.0, 62.0), num_cores=2)
    assert (found.ours, found.others, found.stolen) == pytest.approx((0.6, 0.3, 0.05))


def test_others_are_never_negative() -> None:
    assert between(Reading(0.0, 0.0, 0.0, 0.0), Reading(1.0, 0.9, 0.0, 1.0), 1).others == 0.0
