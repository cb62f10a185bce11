"""A snapshot against the engine it was taken of, at every step of a mixed load."""

from __future__ import annotations

from array import array

import msgspec
import pytest

from pagoda.engine.questions import Answer
from pagoda.engine.snapshot import Snapshot, take_snapshot
from pagoda.kv_cache.page_map import FIRST_OWNER, FREE, IDLE
from pagoda.observability.steps import NUM_REMEMBERED
from tests.engine.fake_engine import FULL, WINDOW, FakeEngine, Shape
from tests.engine.test_loop import mixed_requests


@pytest.mark.parametrize("lateness", [0, 2])
def test_a_snapshot_is_the_engine_as_it_stands(lateness: int):
    engine = FakeEngine(Shape(lateness=lateness, groups=(FULL, WINDOW), num_pages=24))
    for request in mixed_requests(seed=lateness, count=24):
        engine.add(request)
    engine.run(before_step=lambda number: check(engine, take_snapshot(engine.loop)))
    last = take_snapshot(engine.loop)
    assert not last.running and not last.waiting
    assert len(last.steps) == min(NUM_REMEMBERED, engine.loop.counters.num_steps)


def check(engine: FakeEngine, snapshot: Snapshot) -> None:
    board, cache = engine.scheduler.board, engine.scheduler.cache
    assert len(snapshot.running) == engine.scheduler.num_running
    assert len(snapshot.running) + len(snapshot.waiting) == len(board.sequences)
    for group, pool in zip(snapshot.groups, cache.pools, strict=True):
        cells = array("H", group.pages.cells).tolist()
        assert cells.count(FREE) == len(pool.free) and cells.count(IDLE) == pool.num_idle
        own = [cells.count(FIRST_OWNER + owner) for owner in range(len(snapshot.running))]
        assert sum(own) == sum(count == 1 for count in pool.refs)
    assert [step.step_id for step in snapshot.steps] == sorted(step.step_id for step in snapshot.steps)
    assert all(decision.step_id >= snapshot.steps[0].step_id for decision in snapshot.decisions if snapshot.steps)


def test_steps_add_up_to_the_counters():
    engine = FakeEngine(Shape())
    for request in mixed_requests(seed=3, count=6):
        engine.add(request)
    engine.run()
    steps, counters = take_snapshot(engine.loop).steps, engine.loop.counters
    assert len(steps) == counters.num_steps < NUM_REMEMBERED
    assert sum(step.num_tokens for step in steps) == counters.num_computed_tokens
    assert sum(step.num_drawn for step in steps) == counters.num_drawn_tokens
    assert all(step.seconds > 0 and step.num_rows <= 6 for step in steps)


def test_it_travels():
    engine = FakeEngine(Shape())
    engine.add(mixed_requests(seed=1, count=1)[0])
    engine.step()
    answer = Answer(1, take_snapshot(engine.loop))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(answer), type=Answer) == answer
