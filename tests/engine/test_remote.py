"""An engine in a process of its own: the same answers, and what becomes of requests when it is killed or hangs."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from pagoda import LLM, SamplingParams
from pagoda.core.config import EngineConfig
from pagoda.core.errors import EngineError, EngineGone, InvalidRequest
from pagoda.core.request import Request
from pagoda.engine import remote as remote_module
from pagoda.engine.desk import Delivery
from pagoda.engine.output import RequestOutput
from pagoda.engine.questions import Stories, WhyQuestion
from pagoda.engine.remote import RemoteEngine
from pagoda.engine.wire import Alive, EngineInfo, Hello, Loading, Ready, frame
from pagoda.scheduler.words import tell
from pagoda.text import Tokenizer

GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
LONG = SamplingParams(temperature=0, max_tokens=450, ignore_eos=True)
PROMPT = (20, 21, 22, 23)
INFO = EngineInfo(
    model="m",
    model_path="/m",
    vocab_size=8,
    max_model_len=8,
    max_num_seqs=1,
    page_size=4,
    num_pages=(8,),
    weight_bytes=1,
    cache_bytes=1,
    kv_cache_type="f32",
    compute="f32",
)
PATIENCE = 60.0  # a test that waits this long hangs
STUB = """
import math, sys, time
from pagoda.engine import process
from tests.engine.turnstile import Turnstile

build = process.build_engine

def load(config, progress):
    {loader}

process.build_engine = load
sys.exit(process.main(sys.argv[1:]))
"""
RESTING = "engine = build(config, progress); Turnstile(engine.loop).let(math.inf, {pause}); return engine"


class Place:
    """A remote engine and the processes that were started for it."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.remote = RemoteEngine(Tokenizer.from_folder(model))
        self.socket = folder / "engine"
        self._model = model
        self._processes: list[subprocess.Popen[bytes]] = []

    def start_engine(self, pause: float = 0.0) -> subprocess.Popen[bytes]:
        """One that rests so many seconds before each step: what it has begun is still under way a moment later."""
        config = EngineConfig(
            model=str(self._model), max_num_seqs=8, max_num_batched_tokens=64, num_threads=1, num_pages=300
        )
        settings = msgspec.json.encode(config).decode()
        stub = STUB.format(loader=RESTING.format(pause=pause))
        code = ["-c", stub] if pause else ["-m", "pagoda.engine.process"]
        self._processes.append(subprocess.Popen([sys.executable, *code, str(self.socket), settings]))
        return self._processes[-1]

    async def ready(self) -> None:
        await until(lambda: self.remote.state.is_ready)

    def stream(self, request_id: str, sampling: SamplingParams, delivery: Delivery | None = None, prompt=PROMPT):
        request = Request(request_id=request_id, prompt_token_ids=prompt, sampling=sampling)
        return self.remote.stream(request, None, delivery or Delivery())

    async def close(self) -> None:
        await self.remote.close()
        for process in self._processes:
            process.send_signal(signal.SIGCONT)
            assert await asyncio.to_thread(process.wait, PATIENCE) is not None


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


async def last(stream: AsyncIterator[RequestOutput]) -> RequestOutput:
    async for output in stream:
        found = output
    assert found.finished
    return found


@pytest.fixture
def talk(tmp_path: Path, tiny_folder: Path) -> Callable[[Callable[[Place], Awaitable[None]]], None]:
    @asynccontextmanager
    async def place() -> AsyncIterator[Place]:
        own = Place(tmp_path, tiny_folder)
        await own.remote.listen(own.socket)
        try:
            yield own
        finally:
            await own.close()

    def run(conversation: Callable[[Place], Awaitable[None]]) -> None:
        async def whole() -> None:
            async with place() as own:
                await conversation(own)

        asyncio.run(asyncio.wait_for(whole(), PATIENCE))

    return run


def test_it_gives_what_the_offline_door_gives_and_ends_when_nobody_listens(talk, tiny_folder: Path):
    with LLM(tiny_folder, num_threads=1) as llm:
        expected = [answer.token_ids for answer in llm.generate([list(PROMPT)], GREEDY)[0].outputs]

    async def conversation(place: Place) -> None:
        process = place.start_engine()
        await place.ready()
        outputs = await asyncio.gather(*(last(place.stream(str(n), GREEDY)) for n in range(20)))
        assert all([answer.token_ids for answer in output.outputs] == expected for output in outputs)
        assert place.remote.num_open == 0
        info = place.remote.state.info
        assert info is not None and info.num_pages == (300,) and info.max_num_seqs == 8
        await place.close()
        assert process.returncode == 0

    talk(conversation)


def test_a_bad_request_fails_alone_and_with_its_own_error(talk):
    async def conversation(place: Place) -> None:
        place.start_engine()
        await place.ready()
        with pytest.raises(InvalidRequest, match="token ids must lie between") as caught:
            await last(place.stream("bad", GREEDY, prompt=(99999,)))
        assert caught.value.field == "prompt"
        assert (await last(place.stream("good", GREEDY))).finished

    talk(conversation)


def test_leaving_a_stream_frees_its_pages(talk):
    async def conversation(place: Place) -> None:
        place.start_engine()
        await place.ready()
        stream = place.stream("left", LONG)
        await anext(stream)
        await stream.aclose()
        await until(lambda: place.remote.state.report is not None and place.remote.state.report.num_used_pages == (0,))
        assert place.remote.state.report is not None and place.remote.state.report.num_running == 0
        assert (await last(place.stream("left", GREEDY))).finished, "the id is free again"

    talk(conversation)


def test_a_question_is_answered_between_two_steps(talk):
    async def conversation(place: Place) -> None:
        with pytest.raises(EngineError, match="no engine"):
            await place.remote.ask(WhyQuestion("call"))
        process = place.start_engine(pause=0.005)
        await place.ready()
        asked = place.stream("call-0", LONG)
        other = place.stream("other", LONG)
        await asyncio.gather(anext(asked), anext(other))  # one that the engine has yet to take has no story
        waiting = asyncio.create_task(last(asked))
        content = await place.remote.ask(WhyQuestion("call"))
        assert isinstance(content, Stories) and not waiting.done()
        assert [story.request_id for story in content.stories] == ["call-0"]
        lines = tell(content.stories[0])
        assert "queued with 4 prompt tokens" in lines[0] and "started" in lines[1]
        assert await place.remote.ask(WhyQuestion("nobody")) == Stories(())
        assert (await waiting).finished
        os.kill(process.pid, signal.SIGSTOP)
        asking = asyncio.create_task(place.remote.ask(WhyQuestion("call")))
        await asyncio.sleep(0.05)
        process.kill()
        with pytest.raises(EngineError, match="stopped"):
            await asking

    talk(conversation)


def test_requests_wait_for_an_engine_that_is_still_loading(talk):
    async def conversation(place: Place) -> None:
        waiting = asyncio.create_task(last(place.stream("early", GREEDY)))
        left = place.stream("gone", GREEDY)
        leaving = asyncio.create_task(anext(left))
        await asyncio.sleep(0.05)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        place.start_engine()
        assert (await waiting).finished
        assert (await last(place.stream("gone", GREEDY))).finished

    talk(conversation)


def test_after_a_kill_what_showed_nothing_is_run_again_and_the_rest_hears_of_it(talk):
    async def conversation(place: Place) -> None:
        first = place.start_engine(pause=0.05)
        await place.ready()
        shown = Delivery()
        open_stream, hidden = place.stream("shown", LONG, shown), place.stream("hidden", LONG)
        await asyncio.gather(anext(open_stream), anext(hidden))  # the engine is at work on both
        shown.has_shown = True
        waiting = asyncio.create_task(last(hidden))
        first.kill()
        with pytest.raises(EngineError, match="the engine stopped"):
            await last(open_stream)
        await until(lambda: not place.remote.state.is_ready)
        assert not waiting.done()
        late = asyncio.create_task(last(place.stream("late", GREEDY)))
        place.start_engine()
        expected = (await last(place.stream("expected", LONG))).outputs[0].token_ids
        assert (await waiting).outputs[0].token_ids == expected
        assert (await late).outputs[0].token_ids == expected[:12]
        assert place.remote.state.num_deaths == 1 and place.remote.num_open == 0

    talk(conversation)


def test_when_no_engine_will_come_all_who_wait_are_told(talk):
    async def conversation(place: Place) -> None:
        process = place.start_engine()
        await place.ready()
        os.kill(process.pid, signal.SIGSTOP)
        waiting = [asyncio.create_task(last(place.stream(str(number), LONG))) for number in range(3)]
        await asyncio.sleep(0.05)
        place.remote.give_up()
        process.kill()
        await until(lambda: place.remote.state.num_deaths == 1)
        for one in waiting:
            with pytest.raises(EngineGone):
                await one
        with pytest.raises(EngineGone):
            await last(place.stream("late", GREEDY))
        assert place.remote.num_open == 0

    talk(conversation)


def test_an_engine_that_hangs_is_killed(talk, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(remote_module, "LONGEST_SILENCE_SECONDS", 1.0)

    async def conversation(place: Place) -> None:
        process = place.start_engine()
        await place.ready()
        waiting = asyncio.create_task(last(place.stream("hidden", LONG)))
        os.kill(process.pid, signal.SIGSTOP)
        assert await asyncio.to_thread(process.wait, PATIENCE) == -signal.SIGKILL
        place.start_engine()
        assert (await waiting).finished
        assert "hung" in place.remote.state.last_words or place.remote.state.num_deaths == 1

    talk(conversation)


def test_requests_that_come_do_not_hide_that_the_engine_hangs(talk, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(remote_module, "LONGEST_SILENCE_SECONDS", 1.0)

    async def conversation(place: Place) -> None:
        process = place.start_engine()
        await place.ready()
        os.kill(process.pid, signal.SIGSTOP)
        waiting = []
        while process.poll() is None:
            waiting.append(asyncio.create_task(last(place.stream(str(len(waiting)), GREEDY))))
            await asyncio.sleep(0.1)
        # It was asked where it hangs; Python 3.11, met in the midst of a call, may die of the answer.
        assert process.returncode in (-signal.SIGKILL, -signal.SIGSEGV)
        place.start_engine()
        assert all(output.finished for output in await asyncio.gather(*waiting))

    talk(conversation)


def start_stub(place: Place, loader: str) -> subprocess.Popen[bytes]:
    """An engine process whose loader does this and no more."""
    settings = msgspec.json.encode(EngineConfig(model="m")).decode()
    command = [sys.executable, "-c", STUB.format(loader=loader), str(place.socket), settings]
    place._processes.append(subprocess.Popen(command, stderr=subprocess.PIPE))
    return place._processes[-1]


@pytest.mark.parametrize("loader", ["time.sleep(60)", "progress(1, 3); time.sleep(60)", "while True: progress(1, 3)"])
def test_a_load_that_hangs_is_killed_and_says_where(talk, loader: str):
    async def conversation(place: Place) -> None:
        place.remote._load_stall_seconds = 1.0
        waiting = asyncio.create_task(last(place.stream("early", GREEDY)))
        process = start_stub(place, loader)
        assert await asyncio.to_thread(process.wait, PATIENCE) == -signal.SIGKILL
        assert process.stderr is not None and b"in load" in process.stderr.read()
        process.stderr.close()
        await until(lambda: place.remote.state.num_deaths == 1)
        assert "loading did not get on" in place.remote.state.last_words
        place.remote._load_stall_seconds = PATIENCE
        place.start_engine()
        assert (await waiting).finished, "the next engine answers what waited"

    talk(conversation)


def test_a_slow_load_is_no_hang(talk):
    async def conversation(place: Place) -> None:
        place.remote._load_stall_seconds = 1.0
        with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
            _, writer = await asyncio.open_unix_connection(place.socket)
            writer.write(frame(Hello(process.pid)))
            news = [Loading(number, 5, 7) for number in range(5)]  # tensor after tensor
            news += [Loading(5, 5, 8 + number) for number in range(5)]  # one large tensor from a slow disk
            news += [Loading(1, 5, 12)]  # and what comes after it begins to count
            for one in news:
                for _ in range(3):
                    writer.write(frame(one))
                    await asyncio.sleep(0.2)
            assert process.poll() is None and place.remote.state.num_loaded == 1
            while process.poll() is None:
                writer.write(frame(news[-1]))
                await asyncio.sleep(0.1)
            writer.close()

    talk(conversation)


def test_a_long_step_is_no_hang_until_it_is_much_too_long(talk, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(remote_module, "LONGEST_SILENCE_SECONDS", 1.0)

    async def conversation(place: Place) -> None:
        asleep = "import signal, time; signal.signal(signal.SIGUSR1, signal.SIG_IGN); print(flush=True); time.sleep(60)"
        with subprocess.Popen([sys.executable, "-c", asleep], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stdout.readline()
            _, writer = await asyncio.open_unix_connection(place.socket)
            for record in (Hello(process.pid), Ready(INFO)):
                writer.write(frame(record))
            for number in range(20):
                await asyncio.sleep(0.1)
                writer.write(frame(Alive(2.0 * number)))
            assert process.poll() is None, "it said that it works"
            while process.poll() is None:
                writer.write(frame(Alive(61.0)))
                await asyncio.sleep(0.1)
            assert process.returncode == -signal.SIGKILL
            writer.close()

    talk(conversation)


def test_an_engine_that_cannot_be_built_says_why(talk, tmp_path: Path):
    async def conversation(place: Place) -> None:
        place._model = tmp_path / "nothing"
        process = place.start_engine()
        assert await asyncio.to_thread(process.wait, PATIENCE) == 1
        await until(lambda: place.remote.state.num_deaths == 1)
        assert "nothing" in place.remote.state.last_words

    talk(conversation)


def test_a_second_engine_is_turned_away(talk):
    async def conversation(place: Place) -> None:
        place.start_engine()
        await place.ready()
        second = place.start_engine()
        assert await asyncio.to_thread(second.wait, PATIENCE) == 0, "nobody listens: nothing is wrong with the engine"
        assert (await last(place.stream("a", GREEDY))).finished

    talk(conversation)
