"""The open requests of one event loop: hands their messages to an engine and its updates to whoever waits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field

from pagoda.core.errors import DeadlineExceeded, EngineError, InvalidRequest, PagodaError
from pagoda.core.request import Request
from pagoda.engine.bell import Bell
from pagoda.engine.messages import (
    Aborted,
    AbortRequest,
    AddRequest,
    Message,
    NewTokens,
    PauseRequest,
    ResumeRequest,
    Update,
)
from pagoda.engine.output import OutputProcessor, RequestOutput
from pagoda.text import Tokenizer

Observe = Callable[[Update, RequestOutput], None]
"""Told of every update of an open request, before it changes the output."""


@dataclass
class Delivery:
    """What the caller has made of an answer so far."""

    has_shown: bool = False
    """Something of it has left for good: the request cannot be run again by another engine."""
    max_unread: int | None = None
    """Tokens that may come while the caller is busy with earlier ones; with more, the request pauses until it looks
    again. None: any number."""
    deadline: float | None = None
    """Of the monotonic clock: the request ends in an error then, wherever it is. None: never."""


@dataclass(eq=False)
class _Open:
    """One request under way."""

    request: Request
    text: str | None
    output: RequestOutput
    delivery: Delivery
    news: Bell = field(default_factory=Bell)
    is_busy: bool = False
    """The caller was handed the output and has not come back for more."""
    num_unread: int = 0
    """Tokens that came since it left."""
    is_paused: bool = False
    is_over: bool = False
    """Its time was over: the engine was told to let go of it."""

    @property
    def must_pause(self) -> bool:
        most = self.delivery.max_unread
        return most is not None and self.num_unread > most and not (self.is_paused or self.output.finished)


class RequestDesk:
    """Everything here happens on one event loop. `send` tells the engine, and whether there is one."""

    def __init__(self, tokenizer: Tokenizer, send: Callable[[Message], bool], observe: Observe | None = None) -> None:
        self._outputs = OutputProcessor(tokenizer)
        self._send = send
        self._observe = observe
        self._open: dict[str, _Open] = {}
        self._leaving: dict[str, asyncio.Event] = {}  # left early; set when the engine has let go of them
        self._error: EngineError | None = None

    def __len__(self) -> int:
        return len(self._open)

    def outputs(self) -> list[RequestOutput]:
        """Of all requests under way, as far as they have come."""
        return [own.output for own in self._open.values()]

    async def stream(
        self, request: Request, text: str | None, delivery: Delivery | None = None
    ) -> AsyncGenerator[RequestOutput, None]:
        """The answer as it grows. Leaving the iteration early (or `aclose`) aborts the request.

        It is the same output again and again, unless the request was run again by another engine meanwhile.
        """
        request_id = request.request_id
        while self._error is None and (left := self._leaving.get(request_id)) is not None:
            await left.wait()  # what still comes of the last request with this id is not for this one
        if self._error is not None:
            raise self._error
        if request_id in self._open:
            raise InvalidRequest("request_id", f"{request_id!r} is already here; ids must be unique")
        output = self._outputs.open(request, text, time.monotonic())
        own = _Open(request, text, output, delivery or Delivery())
        self._open[request_id] = own
        self._send(AddRequest(request))
        deadline = self._expire_later(own)
        is_shown = False  # whether the caller has seen the whole answer
        try:
            while not is_shown:
                error = await own.news.get()  # the output is the same: one look shows all that came meanwhile
                if error is not None and not own.output.finished:
                    raise error
                is_shown = own.output.finished
                own.is_busy, own.num_unread = True, 0
                yield own.output
                self._is_back(own)
        finally:
            if deadline is not None:
                deadline.cancel()
            del self._open[request_id]
            self._leave(own)

    def take(self, updates: list[Update] | tuple[Update, ...]) -> None:
        for update in updates:
            if isinstance(update, Aborted):
                self._let_go(update.request_id)
                continue
            own = self._open.get(update.request_id)
            if self._observe is not None and own is not None:
                self._observe(update, own.output)
            output, then = self._outputs.take(update)
            if isinstance(then, PagodaError):
                if own is not None:
                    own.news.put_nowait(then)
                continue
            if then is not None:
                self._send(then)
            if output is not None and own is not None:
                own.news.put_nowait(None)
                if own.is_busy:
                    self._count_unread(own, update)

    def fail(self, error: EngineError) -> None:
        """No engine will ever answer again."""
        self._error = error
        for own in self._open.values():
            own.news.put_nowait(error)
        for request_id in list(self._leaving):
            self._let_go(request_id)

    def lose_engine(self, error: EngineError) -> int:
        """The engine is gone and another will come: what has shown nothing waits for it, the rest ends in the error.
        Returns how many wait."""
        if self._error is not None:
            return 0  # there will be no other, and all have been told
        for request_id in list(self._leaving):
            self._let_go(request_id)
        num_waiting = 0
        for own in self._open.values():
            if own.output.finished or own.is_over:
                continue
            if own.delivery.has_shown:
                own.news.put_nowait(error)
                self._outputs.forget(own.request.request_id)
                continue
            num_waiting += 1
            own.is_paused = False
            arrival = own.output.metrics.arrival_time
            own.output = self._outputs.open(own.request, own.text, arrival)
        return num_waiting

    def resubmit(self) -> None:
        """Another engine is there: give it what waits."""
        for own in self._open.values():
            if own.request.request_id in self._outputs:
                self._send(AddRequest(own.request))

    def _leave(self, own: _Open) -> None:
        """Nothing more of the request is wanted."""
        request_id = own.request.request_id
        self._outputs.forget(request_id)
        if own.output.finished or own.is_over or self._error is not None:
            return
        own.is_over = True
        if self._send(AbortRequest(request_id)):
            self._leaving[request_id] = asyncio.Event()

    def _expire_later(self, own: _Open) -> asyncio.TimerHandle | None:
        deadline = own.delivery.deadline
        if deadline is None:
            return None
        return asyncio.get_running_loop().call_later(max(0.0, deadline - time.monotonic()), self._expire, own)

    def _expire(self, own: _Open) -> None:
        """Its pages are free at once, though its caller may be busy and hear of it later."""
        if not own.output.finished and not own.is_over:
            self._leave(own)
            seconds = time.monotonic() - own.output.metrics.arrival_time
            own.news.put_nowait(DeadlineExceeded(f"the request was not finished after {seconds:.3g} s, its deadline"))

    def _count_unread(self, own: _Open, update: Update) -> None:
        if isinstance(update, NewTokens):
            own.num_unread += len(update.token_ids)
            if own.must_pause:
                own.is_paused = self._send(PauseRequest(update.request_id))

    def _is_back(self, own: _Open) -> None:
        own.is_busy = False
        if own.is_paused:
            own.is_paused = False
            own.output.metrics.last_token_time = time.monotonic()  # the engine did not need the time between
            self._send(ResumeRequest(own.request.request_id))

    def _let_go(self, request_id: str) -> None:
        if (left := self._leaving.pop(request_id, None)) is not None:
            left.set()
