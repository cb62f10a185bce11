from __future__ import annotations

import msgspec
import numpy as np
import pytest

from pagoda.bench.record import MOST_BINS, MOST_DOTS, BenchRecord, detail_of, level_record, now, timeline_of
from tests.bench.runs import outcome, run_of


def test_the_timeline_holds_every_token_and_every_second_under_way() -> None:
    run = run_of([outcome(0.0, [0.1, 0.2, 7.9]), outcome(2.0, [4.0, 5.0], num_output=6)])
    line = timeline_of(run)
    assert len(line.tokens_per_second) == 40 and line.bin_seconds == pytest.approx(0.25)
    assert sum(line.tokens_per_second) * line.bin_seconds == pytest.approx(3 + 6)
    assert sum(line.num_running) * line.bin_seconds == pytest.approx(7.9 + 3.0)
    assert line.num_running[12] == pytest.approx(2.0) and line.tokens_per_second[0] == pytest.approx(2 / 0.25)


def test_long_runs_are_drawn_with_a_bounded_number_of_points() -> None:
    run = run_of([outcome(float(n), [n + 1.0, n + 2.0]) for n in range(5000)], ended=5002.0)
    detail = detail_of(run)
    assert len(detail.dots) <= MOST_DOTS and len(detail.timeline.num_running) == MOST_BINS


def test_percentiles_are_numpys() -> None:
    firsts = np.random.default_rng(2).lognormal(size=300)
    detail = detail_of(run_of([outcome(0.0, [first]) for first in firsts], ended=1000.0))
    assert detail.ttft == pytest.approx([np.percentile(firsts, share) for share in range(101)])


def test_a_record_survives_json() -> None:
    level = level_record(run_of([outcome(0.0, [1.0, 2.0])]), "1 at a time", 1.0, {"ttft": 2.0})
    record = BenchRecord(
        url="http://x",
        model="m",
        date=now(),
        workload="w",
        extent="e",
        machine="c",
        swept="concurrency",
        levels=[level],
    )
    assert msgspec.json.decode(msgspec.json.encode(record), type=BenchRecord) == record


def test_a_run_without_any_answer() -> None:
    detail = detail_of(run_of([outcome(0.0, [], ended=1.0, error="timeout")]))
    assert detail.ttft == [] and detail.dots == [] and sum(detail.timeline.tokens_per_second) == 0
