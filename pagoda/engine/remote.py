"""The other end of an engine process: takes its connection, knows how it is doing, and survives its death.

There is one engine at a time. It connects by itself, is ready once it says so, and is gone when its connection ends,
which the kernel tells at once however it died. Requests of which nothing has been shown yet wait for the next engine.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import signal
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from pagoda.core.errors import EngineError, EngineGone
from pagoda.core.request import Request
from pagoda.engine.desk import Delivery, Observe, RequestDesk
from pagoda.engine.output import RequestOutput
from pagoda.engine.questions import Answer, Ask, Content, Question
from pagoda.engine.wire import (
    Alive,
    Broken,
    EngineInfo,
    FrameDecoder,
    FromEngine,
    Hello,
    Loading,
    Published,
    Ready,
    Report,
    ToEngine,
    frame,
)
from pagoda.text import Tokenizer

READ_BYTES = 1 << 18
LONGEST_SILENCE_SECONDS = 4.5  # an engine that lives says so every second
SHORTEST_STUCK_SECONDS = 60.0
STUCK_STEPS = 5  # so many times its slowest step an engine may take for one
STACK_SECONDS = 0.25
NUM_REMEMBERED_STEPS = 512
WATCH_SECONDS = 0.2
logger = logging.getLogger(__name__)


@dataclass
class EngineState:
    """How the engine is doing, for whoever asks."""

    pid: int | None = None
    info: EngineInfo | None = None
    """Of the engine that answers now; None while there is none."""
    num_loaded: int = 0
    num_to_load: int = 0
    num_reads: int = 0
    last_progress: float = 0.0
    """When loading was last seen to get on."""
    report: Report | None = None
    num_deaths: int = 0
    last_words: str = ""
    step_seconds: float = 0.0
    """Of the step under way, if it is a long one."""
    last_heard: float = field(default_factory=time.monotonic)

    @property
    def is_ready(self) -> bool:
        return self.info is not None


class RemoteEngine:
    """The engine as an event loop sees it. `on_change` is called when it becomes ready and when it is gone, `on_report`
    after every step."""

    def __init__(
        self, tokenizer: Tokenizer, observe: Observe | None = None, load_stall_seconds: float = math.inf
    ) -> None:
        self._load_stall_seconds = load_stall_seconds
        self.state = EngineState()
        self.on_change: Callable[[], None] = lambda: None
        self.on_report: Callable[[Report], None] = lambda report: None
        self._desk = RequestDesk(tokenizer, self._send, observe)
        self._writer: asyncio.StreamWriter | None = None
        self._server: asyncio.Server | None = None
        self._watch: asyncio.Task[None] | None = None
        self._asked: dict[int, asyncio.Future[Content]] = {}  # questions under way, by their numbers
        self._num_asked = 0
        self._steps: deque[float] = deque(maxlen=NUM_REMEMBERED_STEPS)
        self._is_closing = False

    @property
    def num_open(self) -> int:
        """Requests under way, those that wait for an engine included."""
        return len(self._desk)

    def open_outputs(self) -> list[RequestOutput]:
        return self._desk.outputs()

    async def listen(self, path: Path) -> None:
        """`path` must lie in a folder that nobody else can enter."""
        self._server = await asyncio.start_unix_server(self._serve, path)
        self._watch = asyncio.create_task(self._watch_for_hangs())

    def stream(self, request: Request, text: str | None, delivery: Delivery) -> AsyncGenerator[RequestOutput, None]:
        return self._desk.stream(request, text, delivery)

    async def ask(self, question: Question) -> Content:
        """Ask the engine something beside its work. Without one, and when it dies over it, that is an `EngineError`."""
        self._num_asked += 1
        number = self._num_asked
        if not self._send(Ask(number, question)):
            raise EngineError("there is no engine to ask")
        self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            return await self._asked[number]
        finally:
            del self._asked[number]

    def give_up(self) -> None:
        """There will be no engine any more: whoever waits for one, and whoever comes, is told so."""
        self._desk.fail(EngineGone(f"no engine is started again: {self.state.last_words or 'it ended too often'}"))

    async def close(self) -> None:
        """Let the engine go; what is still open ends in an error."""
        self._is_closing = True
        if self._watch is not None:
            self._watch.cancel()
        if self._server is not None:
            self._server.close()
        self._desk.fail(EngineError("the server is shutting down"))
        if self._writer is not None:
            self._writer.close()

    def _send(self, message: ToEngine) -> bool:
        if self._writer is None or not self.state.is_ready:
            return False
        self._writer.write(frame(message))
        return True

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._writer is not None:
            writer.close()  # one engine at a time
            return
        self._writer = writer
        decoder: FrameDecoder[FromEngine] = FrameDecoder(FromEngine)
        try:
            while data := await reader.read(READ_BYTES):
                self.state.last_heard = time.monotonic()
                for record in decoder.feed(data):
                    self._take(record)
        except (OSError, EngineError) as error:
            self.state.last_words = str(error)
        finally:
            self._writer = None
            writer.close()
            if not self._is_closing:
                self._gone()

    def _take(self, record: FromEngine) -> None:
        match record:
            case Published():
                self._take_step(record)
            case Hello():
                self.state.pid, self.state.last_words = record.pid, ""
                self.state.last_progress = time.monotonic()
            case Loading():
                self._take_progress(record)
            case Ready():
                self.state.info = record.info
                self._desk.resubmit()
                self.on_change()
            case Answer():
                self._take_answer(record)
            case Alive():
                self.state.step_seconds = record.step_seconds
            case Broken():
                self.state.last_words = record.message

    def _take_progress(self, record: Loading) -> None:
        state = self.state
        if (state.num_loaded, state.num_to_load, state.num_reads) != msgspec.structs.astuple(record):
            state.num_loaded, state.num_to_load, state.num_reads = msgspec.structs.astuple(record)
            state.last_progress = time.monotonic()

    def _take_answer(self, record: Answer) -> None:
        asked = self._asked.get(record.number)
        if asked is not None and not asked.done():
            asked.set_result(record.content)

    def _take_step(self, record: Published) -> None:
        self.state.report, self.state.step_seconds = record.report, 0.0
        if record.report.step_seconds:
            self._steps.append(record.report.step_seconds)
        self.on_report(record.report)
        self._desk.take(record.updates)

    def _gone(self) -> None:
        was_ready = self.state.is_ready
        self.state.info, self.state.report, self.state.pid = None, None, None
        self.state.num_loaded = self.state.num_to_load = self.state.num_reads = 0
        self.state.step_seconds = 0.0
        self.state.num_deaths += 1
        reason = self.state.last_words or "its process ended"
        error = EngineError(f"the engine stopped: {reason}")
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(error)
        num_waiting = self._desk.lose_engine(error)
        logger.error("the engine is gone: %s; %d requests wait for the next one", reason, num_waiting)
        if was_ready:
            self.on_change()

    async def _watch_for_hangs(self) -> None:
        looked = time.monotonic()
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            last, looked = looked, time.monotonic()
            if looked - last > 2 * WATCH_SECONDS:
                self.state.last_heard = self.state.last_progress = looked  # it is we who did not listen
            why = self._why_hung(looked)
            if why and self.state.pid is not None:
                await self._kill(self.state.pid, why)

    def _why_hung(self, now: float) -> str:
        """Empty as long as the engine works, or is not there to work."""
        if not self.state.is_ready:
            stalled = now - self.state.last_progress > self._load_stall_seconds
            return f"loading did not get on for {self._load_stall_seconds:g} s" if stalled else ""
        if now - self.state.last_heard > LONGEST_SILENCE_SECONDS:
            return f"nothing came from it for {LONGEST_SILENCE_SECONDS} s"
        patience = max(SHORTEST_STUCK_SECONDS, STUCK_STEPS * max(self._steps, default=0.0))
        return f"a step took more than {patience:.0f} s" if self.state.step_seconds > patience else ""

    async def _kill(self, pid: int, why: str) -> None:
        logger.error("the engine (pid %d) hangs and is killed: %s", pid, why)
        self.state.last_words = f"it hung: {why}"
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGUSR1)  # it says where it hangs, if it still can
            os.kill(pid, signal.SIGCONT)
            await asyncio.sleep(STACK_SECONDS)
            os.kill(pid, signal.SIGKILL)
