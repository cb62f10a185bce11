"""The asynchronous front door: many callers, one engine thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pagoda.core.errors import EngineError
from pagoda.core.request import Request
from pagoda.core.sampling_params import SamplingParams
from pagoda.engine.build import Engine, Progress, build_engine
from pagoda.engine.desk import RequestDesk
from pagoda.engine.llm import engine_config
from pagoda.engine.messages import AbortRequest, Message, Update
from pagoda.engine.output import RequestOutput
from pagoda.engine.prompts import Messages, Prompt

IDLE_WAIT_SECONDS = 0.5  # only a safety net: a message wakes the thread at once


class EngineThread:
    """Turns the loop while there is work and sleeps while there is none."""

    def __init__(
        self, engine: Engine, deliver: Callable[[list[Update]], None], fail: Callable[[EngineError], None]
    ) -> None:
        self._loop = engine.loop
        self._deliver = deliver
        self._fail = fail
        self._wake = threading.Event()
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="pagoda-engine", daemon=True)
        self._thread.start()

    def send(self, message: Message) -> None:
        self._loop.inbox.append(message)
        self._wake.set()

    def close(self) -> None:
        self._is_closing = True
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._is_closing:
                if not self._loop.has_work:
                    if not self._loop.use_idle_time():
                        self._wake.wait(IDLE_WAIT_SECONDS)
                        self._wake.clear()
                    continue
                updates = self._loop.step()
                if updates:
                    self._deliver(updates)
        except EngineError as error:  # everyone who waits must hear of it
            self._fail(error)


class AsyncLLM:
    """A model for many callers at once, to be used from one event loop.

    async for output in llm.generate("Hello", SamplingParams(max_tokens=32)):
        print(output.outputs[0].text)
    """

    def __init__(self, model: str | Path, *, progress: Progress | None = None, **settings: Any) -> None:
        self._engine = build_engine(engine_config(model, settings), progress)
        self._reader = self._engine.prompt_reader()
        self._events: asyncio.AbstractEventLoop | None = None
        self._desk = RequestDesk(self._engine.tokenizer, self._send)
        self._thread = EngineThread(self._engine, self._deliver, self._stopped)

    @property
    def engine(self) -> Engine:
        return self._engine

    def get_default_sampling_params(self) -> SamplingParams:
        """What a call without `sampling_params` takes: what the model's files recommend."""
        return self._engine.sampling_defaults.params()

    def generate(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        priority: int = 0,
        cache_salt: str = "",
    ) -> AsyncGenerator[RequestOutput, None]:
        """The answer as it grows. Leaving the iteration early (or `aclose`) aborts the request."""
        text, token_ids = self._reader.read(prompt)
        request = self._reader.request(token_ids, sampling_params, request_id, priority=priority, cache_salt=cache_salt)
        return self._stream(request, text)

    def chat(
        self, messages: Messages, sampling_params: SamplingParams | None = None, request_id: str | None = None
    ) -> AsyncGenerator[RequestOutput, None]:
        text, token_ids = self._reader.read_chat(self._reader.render_chat(messages))
        return self._stream(self._reader.request(token_ids, sampling_params, request_id), text)

    async def abort(self, request_id: str) -> None:
        """End a request; its stream ends with the finish reason `abort`. One that is not here is no error."""
        self._send(AbortRequest(request_id))

    def close(self) -> None:
        """Stop the engine; streams still open end in an error."""
        self._thread.close()
        self._desk.fail(EngineError("the engine was closed"))
        self._engine.close()

    def _stream(self, request: Request, text: str | None) -> AsyncGenerator[RequestOutput, None]:
        self._engine.loop.check(request)
        # Not a generator around a generator: closing the outer one would leave the inner one to the garbage collector.
        return self._desk.stream(request, text)

    def _send(self, message: Message) -> bool:
        # Whoever sends is on the event loop that will hear of it.
        self._events = asyncio.get_running_loop()
        self._thread.send(message)
        return True

    def _deliver(self, updates: list[Update]) -> None:
        """Called on the engine's thread: text is made on the event loop's, off the engine's path."""
        self._call_soon(self._desk.take, updates)

    def _stopped(self, error: EngineError) -> None:
        self._call_soon(self._desk.fail, error)

    def _call_soon(self, callback: Callable[[Any], None], argument: Any) -> None:
        with suppress(RuntimeError):  # the event loop was closed, and whoever waited there with it
            if self._events is not None:
                self._events.call_soon_threadsafe(callback, argument)
