"""Wakes whoever waits for a request's news."""

from __future__ import annotations

import asyncio

from pagoda.core.errors import PagodaError


class Bell:
    """A queue of which one look takes everything: news only say that there are some, and an error is the last.

    It has one reader, on the event loop that also puts. A queue of asyncio costs three times as much a token.
    """

    __slots__ = ("_error", "_has_news", "_waiter")

    def __init__(self) -> None:
        self._waiter: asyncio.Future[None] | None = None
        self._has_news = False
        self._error: PagodaError | None = None

    def put_nowait(self, error: PagodaError | None) -> None:
        self._has_news = True
        self._error = self._error or error
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def get(self) -> PagodaError | None:
        """Wait for news; the error among them, if there is one."""
        if not self._has_news:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        self._has_news = False
        return self._error
