"""An OpenAI server without a model: it says so many tokens with so much time between them, or misbehaves as told."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class FakeOpenAI:
    first_seconds: float = 0.0
    """From the request to the first token."""
    gap_seconds: float = 0.0
    tokens_per_event: int = 1
    cached_tokens: int = 0
    pieces: int = 1
    """Into so many parts each event is torn on its way."""
    status: int = 200
    error_after: int | None = None
    """Tokens after which the stream breaks with an error event."""
    hangs_up_after: int | None = None
    """Tokens after which the connection is closed."""
    closes: bool = False
    """Ends the connection after each answer."""
    forgets_done: bool = False
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[str] = field(default_factory=list)
    num_connections: int = 0
    most_running: int = 0
    url: str = ""
    _num_running: int = 0

    @contextmanager
    def serve(self) -> Iterator[FakeOpenAI]:
        ready = threading.Event()
        ends: list[Any] = []

        async def main() -> None:
            server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            stop = asyncio.Event()
            ends.extend((asyncio.get_running_loop(), stop))
            ready.set()
            await stop.wait()
            server.close()

        thread = threading.Thread(target=asyncio.run, args=(main(),), daemon=True)
        thread.start()
        assert ready.wait(10)
        try:
            yield self
        finally:
            ends[0].call_soon_threadsafe(ends[1].set)
            thread.join(10)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                self.headers.append(head)
                length = next((int(x[15:]) for x in head.split("\r\n") if x.lower().startswith("content-length:")), 0)
                body = json.loads(await reader.readexactly(length)) if length else {}
                self._num_running += 1
                self.most_running = max(self.most_running, self._num_running)
                try:
                    await self._answer(head, body, writer)
                finally:
                    self._num_running -= 1
                if self.closes:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, head: str, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if head.startswith("GET /v1/models"):
            await self._whole(writer, 200, {"data": [{"id": "fake"}]})
            return
        self.bodies.append(body)
        if self.status != 200:
            await self._whole(writer, self.status, {"error": {"message": "no room"}})
            return
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        count = body["max_tokens"]
        loop = asyncio.get_running_loop()
        due = loop.time() + self.first_seconds
        for number in range(0, count, self.tokens_per_event):
            if number == self.error_after:
                await self._event(writer, {"error": {"message": "it broke"}})
                break
            if number == self.hangs_up_after:
                writer.transport.abort()
                return
            await asyncio.sleep(max(0.0, due - loop.time()))
            due += self.gap_seconds
            words = "".join(f" w{n}" for n in range(number, min(number + self.tokens_per_event, count)))
            await self._event(writer, {"choices": [self._choice("messages" in body, words)]})
        else:
            usage = {
                "prompt_tokens": len(body.get("prompt", body.get("messages"))),
                "completion_tokens": count,
                "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
            }
            await self._event(writer, {"choices": [], "usage": usage})
            if not self.forgets_done:
                await self._send(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")

    @staticmethod
    def _choice(is_chat: bool, words: str) -> dict[str, Any]:
        return {"index": 0, "delta": {"content": words}} if is_chat else {"index": 0, "text": words}

    async def _event(self, writer: asyncio.StreamWriter, content: dict[str, Any]) -> None:
        await self._send(writer, b"data: " + json.dumps(content).encode() + b"\n\n")

    async def _send(self, writer: asyncio.StreamWriter, event: bytes) -> None:
        data = b"%x\r\n%b\r\n" % (len(event), event)
        size = -(-len(data) // self.pieces)
        for start in range(0, len(data), size):
            writer.write(data[start : start + size])
            if self.pieces > 1:
                await writer.drain()
                await asyncio.sleep(0.0005)

    @staticmethod
    async def _whole(writer: asyncio.StreamWriter, status: int, content: dict[str, Any]) -> None:
        data = json.dumps(content).encode()
        writer.write(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%b" % (status, len(data), data))
