"""The open requests of an event loop, against an engine that is a list of messages."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from pagoda.core.errors import DeadlineExceeded, EngineError, InvalidRequest
from pagoda.core.request import Request
from pagoda.core.sampling_params import SamplingParams
from pagoda.engine.desk import Delivery, RequestDesk
from pagoda.engine.messages import (
    Aborted,
    AbortRequest,
    AddRequest,
    Message,
    NewTokens,
    PauseRequest,
    ResumeRequest,
)
from pagoda.text import Tokenizer


class Engine:
    """Remembers what it was sent; is there or is not."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.is_there = True

    def send(self, message: Message) -> bool:
        if self.is_there:
            self.sent.append(message)
        return self.is_there

    def added(self) -> list[str]:
        return [message.request.request_id for message in self.sent if isinstance(message, AddRequest)]


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def desk(engine: Engine, tiny_folder: Path) -> RequestDesk:
    return RequestDesk(Tokenizer.from_folder(tiny_folder), engine.send)


def request(name: str) -> Request:
    return Request(request_id=name, prompt_token_ids=(5, 6), sampling=SamplingParams(max_tokens=8))


async def started(desk: RequestDesk, name: str, delivery: Delivery | None = None):
    stream = desk.stream(request(name), None, delivery)
    task = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    return stream, task


def test_news_reach_their_own_stream(desk: RequestDesk, engine: Engine):
    async def talk() -> None:
        (_, first), (stream, second) = await started(desk, "a"), await started(desk, "b")
        desk.take([NewTokens("b", 0, 1.0, (20,)), NewTokens("b", 0, 1.0, (21,), finish_reason="length")])
        output = await second
        assert output.finished and output.outputs[0].token_ids == [20, 21] and not first.done()
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        assert engine.added() == ["a", "b"] and len(desk) == 1
        first.cancel()

    asyncio.run(talk())


def test_an_id_is_free_again_when_the_engine_has_let_go(desk: RequestDesk, engine: Engine):
    async def talk() -> None:
        stream, task = await started(desk, "a")
        desk.take([NewTokens("a", 0, 1.0, (20,))])
        await task
        await stream.aclose()
        assert engine.sent[-1] == AbortRequest("a")
        _, again = await started(desk, "a")
        assert engine.added() == ["a"], "it waits"
        desk.take([Aborted("a")])
        for _ in range(3):
            await asyncio.sleep(0)
        assert engine.added() == ["a", "a"]
        with pytest.raises(InvalidRequest, match="unique"):
            await anext(desk.stream(request("a"), None))
        again.cancel()

    asyncio.run(talk())


def test_an_abort_that_nobody_heard_keeps_no_id(desk: RequestDesk, engine: Engine):
    async def talk() -> None:
        engine.is_there = False
        _, task = await started(desk, "a")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        engine.is_there = True
        await started(desk, "a")
        assert engine.added() == ["a"]

    asyncio.run(talk())


def test_a_lost_engine_ends_what_was_shown_and_keeps_the_rest(desk: RequestDesk, engine: Engine):
    async def talk() -> None:
        shown = Delivery()
        open_stream, first = await started(desk, "shown", shown)
        hidden, second = await started(desk, "hidden")
        desk.take([NewTokens("shown", 0, 1.0, (20,)), NewTokens("hidden", 0, 1.0, (30,))])
        await first
        await second
        shown.has_shown = True
        third = asyncio.ensure_future(anext(hidden))
        assert desk.lose_engine(EngineError("gone")) == 1
        with pytest.raises(EngineError, match="gone"):
            await anext(open_stream)
        desk.resubmit()
        assert engine.added() == ["shown", "hidden", "hidden"]
        desk.take([NewTokens("hidden", 0, 1.0, (40,), finish_reason="length")])
        assert (await third).outputs[0].token_ids == [40], "the first engine's tokens count for nothing"

    asyncio.run(talk())


def test_a_request_pauses_while_its_caller_is_busy_and_goes_on_when_it_looks_again(desk: RequestDesk, engine: Engine):
    async def talk() -> None:
        stream, task = await started(desk, "a", Delivery(max_unread=3))
        desk.take([NewTokens("a", 0, 1.0, tuple(range(20, 40)))])
        await task
        assert len(engine.sent) == 1, "a caller that waits for more is not busy, however much comes at once"
        desk.take([NewTokens("a", 0, 1.0, (20, 21, 22))])
        assert len(engine.sent) == 1
        desk.take([NewTokens("a", 0, 1.0, (23,)), NewTokens("a", 0, 1.0, (24,))])
        assert engine.sent[1:] == [PauseRequest("a")]
        output = await anext(stream)
        assert output.metrics.last_token_time is not None and output.metrics.last_token_time > 1.0
        assert engine.sent[2:] == [ResumeRequest("a")] and output.outputs[0].token_ids[-5:] == [20, 21, 22, 23, 24]
        desk.take([NewTokens("a", 0, 1.0, (25,) * 9, finish_reason="length")])
        assert len(engine.sent) == 3, "one that is finished has nothing to pause"
        assert (await anext(stream)).finished

    asyncio.run(talk())


def test_a_caller_that_sets_no_limit_is_never_waited_for(desk: RequestDesk, engine: Engine):
    async def talk() -> None:
        stream, task = await started(desk, "a")
        desk.take([NewTokens("a", 0, 1.0, (20,))])
        await task
        desk.take([NewTokens("a", 0, 1.0, (20,) * 1000)])
        assert len(engine.sent) == 1
        await stream.aclose()

    asyncio.run(talk())


def test_a_deadline_ends_a_request_that_waits(desk: RequestDesk, engine: Engine):
    async def talk() -> None:
        _, task = await started(desk, "a", Delivery(deadline=time.monotonic() + 0.2))
        with pytest.raises(DeadlineExceeded, match="not finished after"):
            await task
        assert engine.sent[1:] == [AbortRequest("a")] and len(desk) == 0

    asyncio.run(talk())


def test_a_deadline_frees_the_engine_though_the_caller_is_busy(desk: RequestDesk, engine: Engine):
    async def talk() -> None:
        stream, task = await started(desk, "a", Delivery(has_shown=True, deadline=time.monotonic() + 0.2))
        desk.take([NewTokens("a", 0, 1.0, (20,))])
        await task
        while len(engine.sent) == 1:
            await asyncio.sleep(0.005)
        desk.take([NewTokens("a", 0, 1.0, (), finish_reason="abort"), Aborted("a")])
        desk.lose_engine(EngineError("gone"))
        desk.resubmit()
        with pytest.raises(DeadlineExceeded):
            await anext(stream)
        assert engine.sent[1:] == [AbortRequest("a")], "told once, and never run again"

    asyncio.run(talk())


def test_a_deadline_after_the_end_changes_nothing(desk: RequestDesk, engine: Engine):
    async def talk() -> None:
        stream, task = await started(desk, "a", Delivery(deadline=time.monotonic() + 0.2))
        desk.take([NewTokens("a", 0, 1.0, (20,), finish_reason="length")])
        await asyncio.sleep(0.3)
        assert (await task).finished and len(engine.sent) == 1
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    asyncio.run(talk())


def test_a_failure_for_good_reaches_those_that_come_later(desk: RequestDesk):
    async def talk() -> None:
        _, task = await started(desk, "a")
        desk.fail(EngineError("closed"))
        with pytest.raises(EngineError, match="closed"):
            await task
        with pytest.raises(EngineError, match="closed"):
            await anext(desk.stream(request("b"), None))
        assert len(desk) == 0

    asyncio.run(talk())
