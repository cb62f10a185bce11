from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from pagoda.bench.arrivals import Pace
from pagoda.bench.client import CUT_OFF, Target
from pagoda.bench.conversation import Conversation, Question
from pagoda.bench.load import Extent, Load, Run
from pagoda.bench.measures import measure
from pagoda.bench.trace import TraceWriter, read_trace
from pagoda.core.errors import InvalidRequest
from tests.fakes.openai_server import FakeOpenAI


def endless(max_tokens: int = 4) -> Iterator[Conversation]:
    return (Conversation((Question([number], max_tokens),)) for number in itertools.count(1))


def put(server: FakeOpenAI, pace: Pace | None, extent: Extent, conversations: Iterator[Conversation]) -> Run:
    async def main() -> Run:
        load = Load(Target(server.url, "fake"), pace, extent)
        return await load.measure(conversations, conversations)

    return asyncio.run(main())


def test_so_many_clients_at_a_time_and_no_more() -> None:
    with FakeOpenAI(first_seconds=0.01).serve() as server:
        run = put(server, Pace(concurrency=5), Extent(23), endless())
    assert len(run.outcomes) == len(server.bodies) == 23
    assert server.most_running == 5 == server.num_connections
    assert not any(outcome.error for outcome in run.outcomes)
    assert run.num_running == 0


def test_warm_up_is_sent_and_not_counted() -> None:
    with FakeOpenAI().serve() as server:
        run = put(server, Pace(concurrency=2), Extent(6, warmup=3), endless())
    assert len(run.outcomes) == 6
    assert sorted(body["prompt"] for body in server.bodies[3:]) == [[number] for number in range(4, 10)]
    assert min(outcome.sent for outcome in run.outcomes) >= run.started


def test_a_duration_bounds_what_is_begun_and_what_is_counted() -> None:
    with FakeOpenAI(first_seconds=0.05, gap_seconds=0.02).serve() as server:
        run = put(server, Pace(concurrency=3), Extent(duration=0.4), endless(10))
    assert run.ended - run.started == pytest.approx(0.4)
    assert all(outcome.sent - run.started < 0.4 for outcome in run.outcomes)
    first = run.outcomes[:3]
    assert all(outcome.times[0] <= run.started for outcome in first), "the clock starts when all have begun to answer"
    assert not any(outcome in run.counted for outcome in first)
    assert all(not outcome.error for outcome in run.outcomes), "those under way at the end finish"
    found = measure(run)
    assert found.mean_running <= 3.0 + 1e-9
    # Each client has a token every 20 ms at the soonest.
    assert found.output_tokens_per_second * 0.4 <= 3 * 21


def test_requests_come_at_their_rate_whether_answered_or_not() -> None:
    with FakeOpenAI(first_seconds=0.3).serve() as server:
        run = put(server, Pace(rate=50, burstiness=0), Extent(10), endless())
    sent = sorted(outcome.sent - run.started for outcome in run.outcomes)
    assert all(at >= 0.02 * number for number, at in enumerate(sent)), "none is sent before it is due"
    assert server.most_running > 1


def test_a_trace_is_played_at_its_own_times(tmp_path: Path) -> None:
    trace = [Conversation((Question("x", 2),), at) for at in (0.0, 0.1, 0.2)]
    with FakeOpenAI().serve() as server:
        run = put(server, None, Extent(), iter(trace))
    sent = sorted(outcome.sent - run.started for outcome in run.outcomes)
    assert len(sent) == 3 and all(at >= due for at, due in zip(sent, (0.0, 0.1, 0.2), strict=True))


def test_turns_go_on_from_the_answers_before(tmp_path: Path) -> None:
    turns = Conversation((Question("one", 2), Question("two", 1), Question("three", 1)))

    async def main(server: FakeOpenAI, endpoint: str) -> Run:
        with TraceWriter(tmp_path / "trace") as record:
            load = Load(Target(server.url, "fake", endpoint), Pace(concurrency=1), Extent(1), record)  # type: ignore[arg-type]
            return await load.measure(iter([turns]), iter([]))

    with FakeOpenAI().serve() as server:
        asyncio.run(main(server, "chat"))
    said = [[message["content"] for message in body["messages"]] for body in server.bodies]
    assert said == [["one"], ["one", " w0 w1", "two"], ["one", " w0 w1", "two", " w0", "three"]]
    recorded = [conversation.questions[0].prompt for conversation in read_trace(tmp_path / "trace")]
    assert recorded == [body["messages"] for body in server.bodies]
    with FakeOpenAI().serve() as server:
        asyncio.run(main(server, "completions"))
    assert [body["prompt"] for body in server.bodies] == ["one", "one w0 w1\ntwo", "one w0 w1\ntwo w0\nthree"]


def test_a_conversation_ends_with_an_answer_that_fails() -> None:
    with FakeOpenAI(status=500).serve() as server:
        conversation = Conversation((Question("one", 2), Question("two", 1)))
        run = put(server, Pace(concurrency=1), Extent(1), iter([conversation]))
    assert [outcome.error for outcome in run.outcomes] == ["HTTP 500"]


def test_stopping_cuts_off_what_is_under_way_and_keeps_what_came() -> None:
    async def main(server: FakeOpenAI) -> Run:
        load = Load(Target(server.url, "fake"), Pace(concurrency=4), Extent(100))
        measuring = asyncio.ensure_future(load.measure(endless(1000), endless()))
        while len(server.bodies) < 4:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)
        load.stop()
        return await measuring

    with FakeOpenAI(gap_seconds=0.01).serve() as server:
        run = asyncio.run(main(server))
    assert run.was_interrupted and len(run.outcomes) == 4 and run.num_running == 0
    assert {outcome.error for outcome in run.outcomes} == {CUT_OFF}
    assert all(outcome.times for outcome in run.outcomes)
    found = measure(run)
    assert found.was_interrupted and found.failures == [] and found.output_tokens_per_second > 0


@pytest.mark.parametrize("settings", [{"num_requests": 0}, {"duration": 0.0}, {"warmup": -1}])
def test_nonsense_is_refused(settings: dict[str, float]) -> None:
    with pytest.raises(InvalidRequest):
        Extent(**settings)  # type: ignore[arg-type]
