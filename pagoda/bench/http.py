"""HTTP/1.1 as a load generator needs it: bytes go to whoever asked in the moment they come, without a task switch.

A general client costs more for each token than the servers it is to measure; see docs/design/load-generator.md.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable

Take = Callable[[bytes, float], None]
"""Told of every piece of a body and when it came."""


class BadAnswer(Exception):
    """What came is not HTTP, or not what was asked for."""


class ConnectionLost(Exception):
    """The server hung up before the answer was whole. `has_begun`: something of it had come."""

    def __init__(self, has_begun: bool) -> None:
        super().__init__("the server hung up before the answer was whole")
        self.has_begun = has_begun


class Response:
    """One answer, read as it comes."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.is_complete = False
        self._buffer = b""
        self._is_chunked = False
        self._num_left: int | None = None  # of a body with a length; None: until the connection ends

    @property
    def has_begun(self) -> bool:
        return bool(self.status or self._buffer)

    @property
    def keeps_alive(self) -> bool:
        has_end = self._is_chunked or self._num_left is not None
        return self.is_complete and has_end and self.headers.get("connection", "").lower() != "close"

    def feed(self, data: bytes) -> bytes:
        """What of the body is in these bytes."""
        if self._buffer:
            data, self._buffer = self._buffer + data, b""
        while not self.status:
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self._buffer = data
                return b""
            self._read_head(data[:end])
            data = data[end + 4 :]
        if self._is_chunked:
            return self._read_chunks(data)
        if self._num_left is None:
            return data
        piece = data[: self._num_left]
        self._num_left -= len(piece)
        self.is_complete = self._num_left == 0
        return piece

    def end(self) -> bool:
        """The connection is at its end; whether that ends the answer well."""
        if self.status and not self._is_chunked and self._num_left is None:
            self.is_complete = True
        return self.is_complete

    def _read_head(self, head: bytes) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")
        words = first.split(" ", 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdecimal():
            raise BadAnswer(f"the server does not speak HTTP/1.1: {first[:60]!r}")
        status = int(words[1])
        if status < 200:
            return  # `100 Continue` and the like: the answer follows
        self.status = status
        for line in lines:
            name, _, value = line.partition(":")
            self.headers[name.strip().lower()] = value.strip()
        self._is_chunked = self.headers.get("transfer-encoding", "").lower() == "chunked"
        length = self.headers.get("content-length", "")
        if not self._is_chunked and length.isdecimal():
            self._num_left = int(length)

    def _read_chunks(self, data: bytes) -> bytes:
        pieces = []
        position = 0
        while (line_end := data.find(b"\r\n", position)) >= 0:
            try:
                size = int(data[position:line_end].partition(b";")[0], 16)
            except ValueError:
                raise BadAnswer(f"a chunk begins with {data[position : position + 20]!r}") from None
            if size == 0:
                # Fields may follow the last chunk, and an empty line ends them.
                self.is_complete = data.find(b"\r\n\r\n", line_end) >= 0
                break
            start = line_end + 2
            if len(data) < start + size + 2:
                break
            pieces.append(data[start : start + size])
            position = start + size + 2
        self._buffer = data[position:]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class Connection(asyncio.Protocol):
    """One connection to a server; one question at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._response = Response()
        self._take: Take | None = None
        self._done: asyncio.Future[Response] | None = None
        self.is_open = False

    @classmethod
    async def open(cls, host: str, port: int, tls: ssl.SSLContext | None, seconds: float) -> Connection:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(seconds):
            _, connection = await loop.create_connection(cls, host, port, ssl=tls)
        return connection

    async def ask(self, request: bytes, take: Take) -> Response:
        """Send a request; every piece of the answer's body goes to `take` at once."""
        assert self._transport is not None and self._done is None
        if not self.is_open:
            raise ConnectionLost(has_begun=False)
        self._response, self._take = Response(), take
        self._done = asyncio.get_running_loop().create_future()
        try:
            self._transport.write(request)
            return await self._done
        finally:
            self._done = self._take = None
            if not self._response.keeps_alive:
                self.close()

    def close(self) -> None:
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        done = self._done
        if done is None or self._take is None or done.done():
            self.close()  # nobody asked
            return
        try:
            piece = self._response.feed(data)
            if piece:
                self._take(piece, now)
        except Exception as error:
            done.set_exception(error)
            return
        if self._response.is_complete:
            done.set_result(self._response)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        done = self._done
        if done is None or done.done():
            return
        if error is None and self._response.end():
            done.set_result(self._response)
        else:
            done.set_exception(ConnectionLost(self._response.has_begun))
