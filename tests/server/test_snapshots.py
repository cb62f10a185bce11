"""However many look, the engine is asked seldom."""

from __future__ import annotations

import asyncio

import pytest

from pagoda.core.errors import EngineError
from pagoda.engine.questions import Content, NoAnswer, Question
from pagoda.engine.snapshot import Snapshot
from pagoda.server import snapshots
from pagoda.server.snapshots import SnapshotKeeper

EMPTY = Snapshot((), (), (), (), ())


class Engine:
    def __init__(self, content: Content | None = EMPTY, seconds: float = 0.01) -> None:
        self.content = content
        self.seconds = seconds
        self.num_asked = 0

    async def ask(self, question: Question) -> Content:
        self.num_asked += 1
        await asyncio.sleep(self.seconds)
        if self.content is None:
            raise EngineError("there is no engine to ask")
        return self.content


def test_many_who_ask_at_once_share_one_answer(monkeypatch: pytest.MonkeyPatch):
    async def run() -> None:
        engine = Engine()
        keeper = SnapshotKeeper(engine)  # type: ignore[arg-type]
        found = await asyncio.gather(*(keeper.latest() for _ in range(50)))
        assert engine.num_asked == 1 and all(snapshot is EMPTY for snapshot, _ in found)
        await keeper.latest()
        assert engine.num_asked == 1, "it is still fresh"
        monkeypatch.setattr(snapshots, "FRESH_SECONDS", 0.0)
        await keeper.latest()
        assert engine.num_asked == 2

    asyncio.run(run())


@pytest.mark.parametrize("content", [None, NoAnswer("no")])
def test_without_an_answer_there_is_no_snapshot(content: Content | None):
    async def run() -> None:
        keeper = SnapshotKeeper(Engine(content))  # type: ignore[arg-type]
        assert (await keeper.latest())[0] is None

    asyncio.run(run())


def test_an_engine_in_a_long_step_is_not_waited_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(snapshots, "FRESH_SECONDS", 0.0)
    monkeypatch.setattr(snapshots, "PATIENCE_SECONDS", 0.05)

    async def run() -> None:
        engine = Engine()
        keeper = SnapshotKeeper(engine)  # type: ignore[arg-type]
        await keeper.latest()
        engine.seconds = 0.3
        for _ in range(3):
            snapshot, age = await keeper.latest()
            assert snapshot is EMPTY and age > 0
        assert engine.num_asked == 2, "the question under way is not asked again"
        await asyncio.sleep(0.3)

    asyncio.run(run())
