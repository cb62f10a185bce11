from __future__ import annotations

import asyncio
import time

import pytest

from pagoda.bench.client import Client, Outcome, Target
from pagoda.bench.conversation import Question
from pagoda.core.errors import InvalidRequest, PagodaError
from tests.fakes.openai_server import FakeOpenAI


def ask(server: FakeOpenAI, *questions: Question, **settings: object) -> list[Outcome]:
    target = Target(server.url, "fake", **settings)  # type: ignore[arg-type]

    async def main() -> list[Outcome]:
        client = Client(target)
        outcomes = []
        for question in questions:
            outcomes.append(Outcome(time.perf_counter()))
            await client.ask(question, outcomes[-1], keeps_text=True)
        client.close()
        return outcomes

    return asyncio.run(main())


def test_times_are_those_the_server_was_told_to_take() -> None:
    with FakeOpenAI(first_seconds=0.08, gap_seconds=0.02, cached_tokens=3).serve() as server:
        [outcome] = ask(server, Question([1, 2, 3, 4], 6))
    assert outcome.error == ""
    assert (outcome.num_prompt, outcome.num_cached, outcome.num_output, len(outcome.times)) == (4, 3, 6, 6)
    # No client can have a token before it was sent; how much later it has it is up to the machine.
    assert outcome.times[0] - outcome.sent >= 0.08
    assert outcome.times[-1] - outcome.sent >= 0.08 + 5 * 0.02
    assert outcome.ended >= outcome.times[-1]


@pytest.mark.parametrize("endpoint", ["completions", "chat"])
def test_bodies(endpoint: str) -> None:
    with FakeOpenAI().serve() as server:
        [outcome] = ask(
            server, Question("Name a river.", 3), endpoint=endpoint, fields={"top_p": 0.5}, api_key="secret"
        )
    [body] = server.bodies
    assert outcome.text == " w0 w1 w2"
    asked = {"prompt": "Name a river."}
    if endpoint == "chat":
        asked = {"messages": [{"role": "user", "content": "Name a river."}]}  # type: ignore[dict-item]
    usage = {"stream": True, "stream_options": {"include_usage": True}}
    assert body == {"model": "fake", "max_tokens": 3, "top_p": 0.5, **asked, **usage}
    assert "Authorization: Bearer secret" in server.headers[0]


def test_messages_go_to_the_chat_endpoint() -> None:
    with FakeOpenAI().serve() as server:
        ask(server, Question([{"role": "user", "content": "hi"}], 1))
    assert server.headers[0].startswith("POST /v1/chat/completions ")


def test_events_torn_into_pieces_are_the_same_answer() -> None:
    with FakeOpenAI(pieces=5).serve() as server:
        [outcome] = ask(server, Question([1], 4))
    assert outcome.error == "" and outcome.text == " w0 w1 w2 w3" and len(outcome.times) == 4


def test_a_connection_is_used_again() -> None:
    with FakeOpenAI().serve() as server:
        ask(server, *[Question([1], 2)] * 5)
    assert server.num_connections == 1


def test_a_server_that_hangs_up_after_each_answer_is_no_failure() -> None:
    with FakeOpenAI(closes=True).serve() as server:
        outcomes = ask(server, *[Question([1], 2)] * 3)
    assert [outcome.error for outcome in outcomes] == [""] * 3


@pytest.mark.parametrize(
    ("settings", "kind", "words"),
    [
        ({"status": 503}, "HTTP 503", "no room"),
        ({"error_after": 2}, "error in the stream", "it broke"),
        ({"hangs_up_after": 2}, "connection lost", "hung up"),
        ({"forgets_done": True}, "cut short", "[DONE]"),
        ({"first_seconds": 5.0}, "timeout", "0.2 s"),
    ],
)
def test_failures_by_kind(settings: dict[str, object], kind: str, words: str) -> None:
    with FakeOpenAI(**settings).serve() as server:  # type: ignore[arg-type]
        [outcome] = ask(server, Question([1], 4), answer_seconds=0.2)
    assert outcome.error == kind and words in outcome.message
    if kind in ("error in the stream", "connection lost"):
        assert len(outcome.times) == 2, "what came before is noted"


def test_nobody_there() -> None:
    with FakeOpenAI().serve() as server:
        pass
    [outcome] = ask(server, Question([1], 4))
    assert outcome.error == "no connection"
    with pytest.raises(PagodaError, match="no server answers at http://127.0.0.1"):
        asyncio.run(first_model(server.url))


async def first_model(url: str) -> str:
    client = Client(Target(url))
    try:
        return await client.first_model()
    finally:
        client.close()


def test_the_first_model() -> None:
    with FakeOpenAI().serve() as server:
        for url in (server.url, f"{server.url}/", f"{server.url}/v1"):
            assert asyncio.run(first_model(url)) == "fake"


@pytest.mark.parametrize("url", ["", "localhost:8000", "ftp://localhost", "http://"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest, match="URL"):
        Client(Target(url))
