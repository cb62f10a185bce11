"""The asynchronous front door: many streams at once, each ending exactly once, in an answer or in an error."""

from __future__ import annotations

import asyncio
import math
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pagoda import LLM, AsyncLLM, SamplingParams
from pagoda.core.errors import CapacityError, EngineError, InvalidRequest
from pagoda.engine.output import RequestOutput
from tests.engine.turnstile import Turnstile

GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
LONG = SamplingParams(temperature=0, max_tokens=400, ignore_eos=True)
PATIENCE = 30.0  # a test that waits this long hangs

MakeClient = Callable[..., AsyncLLM]
Hold = Callable[[AsyncLLM], Turnstile]


@pytest.fixture
def make_client(tiny_folder: Path) -> Iterator[MakeClient]:
    made: list[AsyncLLM] = []

    def make(**settings: Any) -> AsyncLLM:
        made.append(AsyncLLM(tiny_folder, **{"max_num_seqs": 8, "max_num_batched_tokens": 64} | settings))
        return made[-1]

    yield make
    for client in made:
        client.close()
    assert not any(thread.name == "pagoda-engine" for thread in threading.enumerate())


@pytest.fixture
def client(make_client: MakeClient) -> AsyncLLM:
    return make_client()


@pytest.fixture
def hold(make_client: MakeClient) -> Iterator[Hold]:
    """A turnstile before the engine's steps; open in the end, so that the client can be closed."""
    turnstiles: list[Turnstile] = []

    def hold(client: AsyncLLM) -> Turnstile:
        turnstiles.append(Turnstile(client.engine.loop))
        return turnstiles[-1]

    yield hold
    for turnstile in turnstiles:
        turnstile.open()


def run(coroutine: Any) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, PATIENCE))


async def last(stream: AsyncIterator[RequestOutput]) -> RequestOutput:
    """The final output, which must be there and be the last."""
    output = None
    async for output in stream:
        is_finished = output.finished
    assert output is not None and is_finished, "the stream ended without its last words"
    return output


async def idle(client: AsyncLLM) -> None:
    """Wait until the engine has nothing to do and nothing is left, neither there nor here."""
    loop, desk = client.engine.loop, client._desk
    while (
        loop.has_work
        or len(loop._answers)
        or any(pool.num_used for pool in loop.scheduler.cache.pools)
        or len(desk)
        or len(desk._outputs)
    ):
        await asyncio.sleep(0.005)


async def in_inbox(client: AsyncLLM, num_messages: int) -> None:
    while len(client.engine.loop.inbox) < num_messages:
        await asyncio.sleep(0.005)


def test_many_streams_give_what_the_offline_door_gives(client: AsyncLLM, tiny_folder: Path):
    prompts = [f"the engine plans {number} steps" for number in range(40)]
    params = [
        SamplingParams(
            temperature=number % 2, seed=number, n=1 + number % 3, max_tokens=3 + number % 9, ignore_eos=True
        )
        for number in range(40)
    ]
    with LLM(tiny_folder) as llm:
        expected = [[answer.token_ids for answer in output.outputs] for output in llm.generate(prompts, params)]

    async def talk() -> list[RequestOutput]:
        outputs = await asyncio.gather(
            *(last(client.generate(prompt, sampling)) for prompt, sampling in zip(prompts, params, strict=True))
        )
        await idle(client)
        return outputs

    outputs = run(talk())
    assert [[answer.token_ids for answer in output.outputs] for output in outputs] == expected
    assert [output.prompt for output in outputs] == prompts
    assert len({output.request_id for output in outputs}) == 40


def test_a_stream_grows_with_every_step(client: AsyncLLM, hold: Hold):
    steps = hold(client)

    async def talk() -> None:
        stream = client.generate("the engine", GREEDY)
        for length in range(1, 13):
            steps.let(1)
            output = await anext(stream)
            assert len(output.outputs[0].token_ids) == length and output.finished == (length == 12)
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    run(talk())


def test_a_slow_reader_sees_together_what_came_meanwhile(client: AsyncLLM, hold: Hold):
    steps = hold(client)

    async def talk() -> None:
        stream = client.generate("the engine", GREEDY)
        steps.let(1)
        assert len((await anext(stream)).outputs[0].token_ids) == 1
        steps.open()
        while client.engine.loop.counters.num_drawn_tokens < 12:
            await asyncio.sleep(0.005)
        rest = [len(output.outputs[0].token_ids) async for output in stream]
        assert rest[0] >= 11 and rest[-1] == 12, "all but what the last step may not yet have told"

    run(talk())


def test_a_chat_is_rendered_by_the_models_template(client: AsyncLLM):
    output = run(last(client.chat([{"role": "user", "content": "hi"}], GREEDY)))
    assert output.prompt == "<|user|>hi\n<|assistant|>"


def test_who_says_nothing_draws_as_the_models_files_recommend(tiny_folder: Path, tmp_path: Path):
    shutil.copytree(tiny_folder, tmp_path / "model")
    (tmp_path / "model" / "generation_config.json").write_text('{"temperature": 0.0, "repetition_penalty": 1.3}')
    client = AsyncLLM(tmp_path / "model")

    async def talk() -> list[list[int]]:
        defaults, other = client.get_default_sampling_params(), SamplingParams(temperature=0.0)
        messages = [{"role": "user", "content": "the engine"}]
        streams = [client.generate("a", params, str(place)) for place, params in enumerate((defaults, None, other))]
        streams += [client.chat(messages, params, f"chat {place}") for place, params in enumerate((defaults, None))]
        return [list((await last(stream)).outputs[0].token_ids) for stream in streams]

    said, unsaid, other, chat_said, chat_unsaid = run(talk())
    client.close()
    assert said == unsaid != other and chat_said == chat_unsaid


def test_stop_strings_end_a_stream(client: AsyncLLM):
    async def talk() -> None:
        plain = await last(client.generate("the engine", LONG))
        text = plain.outputs[0].text
        word = next(word for word in (text[place : place + 3] for place in range(40, 300)) if word.isascii())
        output = await last(client.generate("the engine", SamplingParams(temperature=0, max_tokens=400, stop=word)))
        assert output.outputs[0].text == text.split(word)[0] and output.outputs[0].stop_reason == word
        await idle(client)

    run(talk())


def test_an_abort_ends_the_stream_with_its_reason(client: AsyncLLM, hold: Hold):
    steps = hold(client)

    async def talk() -> None:
        stream = client.generate("the engine", LONG, request_id="mine")
        steps.let(1)
        await anext(stream)
        await client.abort("mine")
        await client.abort("nobody")
        steps.open()
        output = await last(stream)
        assert output.outputs[0].finish_reason == "abort" and len(output.outputs[0].token_ids) == 1
        await idle(client)

    run(talk())


def test_leaving_early_aborts_the_request(client: AsyncLLM, hold: Hold):
    steps = hold(client)

    async def talk() -> None:
        stream = client.generate("the engine", LONG, request_id="left")
        steps.let(1)
        await anext(stream)
        await stream.aclose()
        steps.open()
        await idle(client)
        assert client.engine.loop.counters.num_drawn_tokens == 1

    run(talk())


def test_an_id_may_be_used_again_at_once(client: AsyncLLM, hold: Hold):
    """What still comes of the request that was left must not reach the one that took its name."""
    steps = hold(client)

    async def talk() -> None:
        steps.let(math.inf, pause=0.001)
        expected = (await last(client.generate("a page", GREEDY))).outputs[0].token_ids
        for _ in range(20):
            stream = client.generate("the engine", LONG, request_id="again")
            await anext(stream)
            await stream.aclose()
            output = await last(client.generate("a page", GREEDY, request_id="again"))
            assert output.outputs[0].finish_reason == "length"
            assert output.outputs[0].token_ids == expected
        await idle(client)

    run(talk())


def test_a_cancelled_task_aborts_its_request(client: AsyncLLM, hold: Hold):
    steps = hold(client)

    async def talk() -> None:
        task = asyncio.create_task(last(client.generate("the engine", LONG)))
        steps.let(3)
        while client.engine.loop.counters.num_drawn_tokens < 3:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        steps.open()
        await idle(client)
        assert client.engine.loop.counters.num_drawn_tokens == 3

    run(talk())


def test_an_id_in_use_is_refused_and_its_owner_goes_on(client: AsyncLLM, hold: Hold):
    steps = hold(client)

    async def talk() -> None:
        stream = client.generate("the engine", GREEDY, request_id="mine")
        steps.let(1)
        await anext(stream)
        with pytest.raises(InvalidRequest, match="request_id.*unique"):
            await anext(client.generate("a", GREEDY, request_id="mine"))
        steps.open()
        assert len((await last(stream)).outputs[0].token_ids) == 12
        await idle(client)

    run(talk())


def test_bad_requests_are_refused_before_they_are_sent(client: AsyncLLM):
    async def talk() -> None:
        for prompt in ("", [320], [], 5, None):
            with pytest.raises(InvalidRequest, match="^prompt"):
                await anext(client.generate(prompt, GREEDY))
        with pytest.raises(InvalidRequest, match="^messages"):
            await anext(client.chat("hi", GREEDY))
        assert client.engine.loop.counters.num_requests == 0

    run(talk())


def test_a_request_that_can_never_fit_fails_alone(make_client: MakeClient, hold: Hold):
    client = make_client(num_pages=4, max_model_len=64)
    steps = hold(client)

    async def talk() -> None:
        good = client.generate("the engine", SamplingParams(temperature=0, max_tokens=8, ignore_eos=True))
        steps.let(1)
        await anext(good)
        client.engine.loop.scheduler.cache.most_pages = lambda *_: 5
        bad = asyncio.create_task(last(client.generate("a", GREEDY)))
        await in_inbox(client, 1)
        steps.let(1)
        with pytest.raises(CapacityError, match="need 5 pages"):
            await bad
        del client.engine.loop.scheduler.cache.most_pages
        steps.open()
        assert (await last(good)).finished
        await idle(client)

    run(talk())


@pytest.mark.parametrize("where", ["submit", "collect"])
def test_a_failure_of_the_engine_reaches_every_stream(client: AsyncLLM, hold: Hold, where: str):
    steps = hold(client)

    async def talk() -> None:
        streams = [client.generate(f"the engine {number}", LONG) for number in range(6)]
        steps.let(math.inf, pause=0.02)
        for stream in streams:
            await anext(stream)

        def broken(*_: object) -> None:
            raise RuntimeError("the device is gone")

        setattr(client.engine.loop.executor, where, broken)
        steps.open()
        for stream in streams:
            with pytest.raises(EngineError, match="RuntimeError: the device is gone"):
                await last(stream)
        for _ in range(2):
            with pytest.raises(EngineError, match="the device is gone"):
                await anext(client.generate("a", GREEDY, request_id="late"))

    run(talk())


def test_an_error_behind_news_is_not_lost(client: AsyncLLM, hold: Hold):
    """The reader is away while both a token and the failure come in."""
    steps = hold(client)

    async def talk() -> None:
        stream = client.generate("the engine", LONG, request_id="mine")
        steps.let(math.inf, pause=0.02)
        await anext(stream)
        client._thread.close()
        client._desk._open["mine"].news.put_nowait(None)
        client._desk.fail(EngineError("gone"))
        with pytest.raises(EngineError, match="gone"):
            await last(stream)

    run(talk())


def test_closing_ends_open_streams_in_an_error(client: AsyncLLM, hold: Hold):
    steps = hold(client)

    async def talk() -> None:
        streams = [client.generate("the engine", LONG) for _ in range(3)]
        steps.let(math.inf, pause=0.02)
        for stream in streams:
            await anext(stream)
        client.close()
        client.close()
        for stream in streams:
            with pytest.raises(EngineError, match="closed"):
                await last(stream)
        with pytest.raises(EngineError, match="closed"):
            await anext(client.generate("a", GREEDY))

    run(talk())


def test_one_client_may_serve_one_event_loop_after_another(client: AsyncLLM):
    async def leave_open() -> None:
        stream = client.generate("the engine", LONG)
        await anext(stream)

    first = run(last(client.generate("the engine", GREEDY)))
    run(leave_open())
    second = run(last(client.generate("the engine", GREEDY)))
    assert first.outputs[0].token_ids == second.outputs[0].token_ids


def test_priority_and_salt_reach_the_engine(make_client: MakeClient, hold: Hold):
    client = make_client(scheduling_policy="priority", max_num_seqs=1)
    steps = hold(client)

    async def talk() -> None:
        streams = [client.generate(f"the {rank}", LONG, priority=rank) for rank in (2, 1)]
        answers = asyncio.gather(*(last(stream) for stream in streams))
        await in_inbox(client, 2)
        steps.open()
        low, high = await answers
        assert high.metrics.finished_time < low.metrics.finished_time
        prompt = list(range(20, 60))
        cached = [
            (await last(client.generate(prompt, GREEDY, cache_salt=salt))).num_cached_tokens
            for salt in ("", "one", "one", "two")
        ]
        assert cached == [0, 0, 32, 0]

    run(talk())


def test_idle_time_is_used_until_there_is_no_more_to_do(client: AsyncLLM, monkeypatch: pytest.MonkeyPatch):
    loop, left = client.engine.loop, [3]
    done = threading.Event()

    def use_idle_time() -> bool:
        assert not loop.has_work
        left[0] -= 1
        if left[0] == 0:
            done.set()
        return left[0] > 0

    monkeypatch.setattr(loop.executor, "use_idle_time", use_idle_time)
    output = run(last(client.generate("A", GREEDY)))
    assert len(output.outputs[0].token_ids) == 12 and done.wait(PATIENCE)


def test_an_error_in_idle_time_reaches_every_stream(client: AsyncLLM, monkeypatch: pytest.MonkeyPatch):
    def fail() -> bool:
        raise RuntimeError("no graph")

    monkeypatch.setattr(client.engine.loop.executor, "use_idle_time", fail)

    async def ask() -> None:
        await last(client.generate("A", GREEDY))
        while not client.engine.loop.has_failed:
            await asyncio.sleep(0.005)
        await last(client.generate("B", GREEDY))

    with pytest.raises(EngineError, match="beside its steps: RuntimeError: no graph"):
        run(ask())
