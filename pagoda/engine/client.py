"""The asynchronous front door: many callers, one engine thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pagoda.core.errors import EngineError, InvalidRequest, PagodaError
from pagoda.core.sampling_params import SamplingParams
from pagoda.engine.build import Engine, Progress, build_engine
from pagoda.engine.llm import engine_config
from pagoda.engine.messages import Aborted, AbortRequest, AddRequest, Message, Update
from pagoda.engine.output import OutputProcessor, RequestOutput
from pagoda.engine.prompts import Messages, Prompt, PromptReader

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
        self._outputs = OutputProcessor(self._engine.tokenizer)
        self._reader = PromptReader(self._engine.tokenizer, self._engine.loop.max_model_len)
        self._streams: dict[str, asyncio.Queue[RequestOutput | PagodaError]] = {}
        self._events: asyncio.AbstractEventLoop | None = None
        self._leaving: dict[str, asyncio.Event] = {}  # left early; set when the engine has let go of them
        self._error: EngineError | None = None
        self._thread = EngineThread(self._engine, self._deliver, self._stopped)

    @property
    def engine(self) -> Engine:
        return self._engine

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
        # Not a generator around a generator: closing the outer one would leave the inner one to the garbage collector.
        return self._stream(text, token_ids, sampling_params, request_id, priority, cache_salt)

    def chat(
        self, messages: Messages, sampling_params: SamplingParams | None = None, request_id: str | None = None
    ) -> AsyncGenerator[RequestOutput, None]:
        text, token_ids = self._reader.read_chat(self._reader.render_chat(messages))
        return self._stream(text, token_ids, sampling_params, request_id, 0, "")

    async def abort(self, request_id: str) -> None:
        """End a request; its stream ends with the finish reason `abort`. One that is not here is no error."""
        self._thread.send(AbortRequest(request_id))

    def close(self) -> None:
        """Stop the engine; streams still open end in an error."""
        self._thread.close()
        self._fail_streams(EngineError("the engine was closed"))
        self._engine.close()

    async def _stream(
        self,
        text: str | None,
        token_ids: list[int],
        sampling: SamplingParams | None,
        request_id: str | None,
        priority: int,
        cache_salt: str,
    ) -> AsyncGenerator[RequestOutput, None]:
        request = self._reader.request(
            token_ids, sampling or SamplingParams(), request_id, priority=priority, cache_salt=cache_salt
        )
        while self._error is None and (left := self._leaving.get(request.request_id)) is not None:
            await left.wait()  # what still comes of the last request with this id is not for this one
        if self._error is not None:
            raise self._error
        self._engine.loop.check(request)
        if request.request_id in self._streams:
            raise InvalidRequest("request_id", f"{request.request_id!r} is already here; ids must be unique")
        self._events = asyncio.get_running_loop()
        stream: asyncio.Queue[RequestOutput | PagodaError] = asyncio.Queue()
        self._streams[request.request_id] = stream
        output = self._outputs.open(request, text, time.monotonic())
        self._thread.send(AddRequest(request))
        is_shown = False  # whether the caller has seen the whole answer
        try:
            while not is_shown:
                item = await stream.get()
                while not isinstance(item, PagodaError) and not stream.empty():
                    item = stream.get_nowait()  # the object is the same: one look shows all that came meanwhile
                if isinstance(item, PagodaError) and not output.finished:
                    raise item
                is_shown = output.finished
                yield output
        finally:
            del self._streams[request.request_id]
            self._outputs.forget(request.request_id)
            if not output.finished:
                self._leaving[request.request_id] = asyncio.Event()
                self._thread.send(AbortRequest(request.request_id))

    def _deliver(self, updates: list[Update]) -> None:
        """Called on the engine's thread: text is made on the event loop's, off the engine's path."""
        self._call_soon(self._take, updates)

    def _take(self, updates: list[Update]) -> None:
        for update in updates:
            if isinstance(update, Aborted):
                if (left := self._leaving.pop(update.request_id, None)) is not None:
                    left.set()
                continue
            output, then = self._outputs.take(update)
            stream = self._streams.get(update.request_id)
            if isinstance(then, PagodaError):
                if stream is not None:
                    stream.put_nowait(then)
                continue
            if then is not None:
                self._thread.send(then)
            if output is not None and stream is not None:
                stream.put_nowait(output)

    def _stopped(self, error: EngineError) -> None:
        self._error = error
        self._call_soon(self._fail_streams, error)

    def _fail_streams(self, error: EngineError) -> None:
        self._error = error
        for stream in self._streams.values():
            stream.put_nowait(error)
        for request_id in list(self._leaving):
            self._leaving.pop(request_id).set()

    def _call_soon(self, callback: Callable[[Any], None], argument: Any) -> None:
        with suppress(RuntimeError):  # the event loop was closed, and whoever waited there with it
            if self._events is not None:
                self._events.call_soon_threadsafe(callback, argument)
