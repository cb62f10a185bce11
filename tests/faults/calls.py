"""One request over a connection of its own, which can be left at any moment, politely or not."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

CHAT = "/v1/chat/completions"
ERRORS = (ConnectionError, asyncio.IncompleteReadError)


@dataclass
class Call:
    """What is sent by `post` or `get` has been sent when they return; the answer is read by and by."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    start: float
    status: int = 0
    headers: dict[str, str] | None = None

    async def head(self) -> int:
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        self.status = int(lines[0].split()[1])
        self.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        return self.status

    async def body(self) -> Any:
        """The whole answer, which must be JSON or text with a length."""
        if self.headers is None:
            await self.head()
        assert self.headers is not None
        data = await self.reader.readexactly(int(self.headers["content-length"]))
        return json.loads(data) if "json" in self.headers["content-type"] else data.decode()

    async def events(self) -> AsyncIterator[Any]:
        """Each event's data; the last is "[DONE]", unless the stream broke off."""
        if self.headers is None:
            await self.head()
        while line := await self.reader.readline():
            if line == b"0\r\n":
                return
            if line.startswith(b"data: "):
                data = line[6:].strip()
                yield "[DONE]" if data == b"[DONE]" else json.loads(data)

    def close(self) -> None:
        self.writer.close()

    def leave(self, politely: bool) -> None:
        """Gone: with a FIN, or with a RST as when a process is killed."""
        if not politely:
            linger = struct.pack("ii", 1, 0)
            self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.writer.transport.abort()


async def post(url: str, path: str, body: dict[str, Any]) -> Call:
    data = json.dumps(body).encode()
    return await _send(url, f"POST {path}", f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n", data)


async def get(url: str, path: str) -> Call:
    return await _send(url, f"GET {path}", "", b"")


async def _send(url: str, line: str, headers: str, data: bytes) -> Call:
    parts = urlsplit(url)
    start = time.monotonic()
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=1 << 22)
    writer.write(f"{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n".encode() + data)
    return Call(reader, writer, start)


async def whole(url: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
    """Status and content of a whole answer."""
    call = await (get(url, path) if body is None else post(url, path, body))
    try:
        return await call.head(), await call.body()
    finally:
        call.close()


def chat_body(content: str, max_tokens: int, **fields: Any) -> dict[str, Any]:
    """A greedy answer of exactly so many tokens."""
    messages = [{"role": "user", "content": content}]
    return {"messages": messages, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True, **fields}


def text_of(answer: Any) -> str:
    return str(answer["choices"][0]["message"]["content"])
