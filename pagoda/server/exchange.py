"""One request and its answer over ASGI: the body in, JSON or a stream of events out, and an eye on the client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from pagoda.server.bodies import ClientGone, Receive, decode, read_body, read_json_body
from pagoda.server.errors import ApiError
from pagoda.server.keys import ApiKey
from pagoda.server.limits import Limits

Scope = MutableMapping[str, Any]
Send = Callable[[Any], Awaitable[None]]
Record = TypeVar("Record")
Result = TypeVar("Result")
JSON_TYPE = (b"content-type", b"application/json")
EVENT_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # a proxy that collects events before it hands them on makes them late
]
encoder = msgspec.json.Encoder()


class Exchange:
    """What a handler gets. It answers once: with `json`, with `error`, or with `events`."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, limits: Limits, request_id: str) -> None:
        self.scope = scope
        self.limits = limits
        self.request_id = request_id
        self.arrived = time.monotonic()
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.key = ApiKey.anonymous()
        self.status = 0
        """Of the answer, once it has begun."""
        self._receive = receive
        self._send = send

    @property
    def path(self) -> str:
        return str(self.scope["path"])

    @property
    def has_begun(self) -> bool:
        return self.status != 0

    @property
    def wants_page(self) -> bool:
        """A browser asks, and a person will see the answer."""
        return b"text/html" in self.headers.get(b"accept", b"")

    def path_parameter(self, name: str) -> str:
        return str(self.scope["path_params"][name])

    async def read(self, decoder: msgspec.json.Decoder[Record]) -> Record:
        body = await read_json_body(self.headers, self._receive, self.limits)
        return decode(decoder, body, self.limits)

    async def read_bytes(self, most: int) -> bytes:
        return await read_body(self.headers, self._receive, most)

    async def json(self, content: Any, status: int = 200, headers: list[tuple[bytes, bytes]] | None = None) -> None:
        await self.whole(encoder.encode(content), [JSON_TYPE, *(headers or [])], status)

    async def whole(self, body: bytes, headers: list[tuple[bytes, bytes]], status: int = 200) -> None:
        await self._begin(status, [*headers, (b"content-length", str(len(body)).encode())])
        await self._send({"type": "http.response.body", "body": body})

    async def error(self, error: ApiError) -> None:
        headers = []
        if error.retry_after is not None:
            headers.append((b"retry-after", str(max(1, round(error.retry_after))).encode()))
        if error.allow is not None:
            headers.append((b"allow", error.allow.encode()))
        if error.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        await self.json(error_body(error), error.status, headers)

    async def events(self, events: AsyncIterator[bytes]) -> None:
        """A stream of whole events. What fails after the first has gone out becomes an event itself."""
        await self._begin(200, EVENT_HEADERS)
        async for event in events:
            await self._send({"type": "http.response.body", "body": event, "more_body": True})
        await self._send({"type": "http.response.body", "body": b""})

    async def while_listening(self, work: Awaitable[Result]) -> Result:
        """Do the work as long as the client is there; `ClientGone` once it is not."""
        task = asyncio.ensure_future(work)
        watch = asyncio.ensure_future(self._until_gone())
        try:
            await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise ClientGone
        finally:
            for one in (task, watch):
                one.cancel()
            for one in (task, watch):
                with suppress(asyncio.CancelledError, Exception):
                    await one

    async def _until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def _begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        assert not self.has_begun, "an answer was begun twice"
        self.status = status
        shown = [*headers, (b"x-request-id", self.request_id.encode("latin-1", "replace"))]
        await self._send({"type": "http.response.start", "status": status, "headers": shown})


def error_body(error: ApiError) -> dict[str, Any]:
    return {"error": {"message": error.message, "type": error.kind, "param": error.param, "code": error.code}}
