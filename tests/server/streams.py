"""Chats that go on beside a test, and are let go of when it ends."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Any

import httpx

START_SECONDS = 30.0


class Streams:
    """So many streamed chats at once; where one has drawn `max_tokens`, the next begins."""

    def __init__(self, url: str, count: int, max_tokens: int) -> None:
        self._url = url
        self._max_tokens = max_tokens
        self._is_closing = False
        self._started = [False] * count
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(count)]

    def wait_for_first_tokens(self, count: int) -> None:
        deadline = time.monotonic() + START_SECONDS
        while sum(self._started) < count:
            assert time.monotonic() < deadline, f"only {sum(self._started)} of {count} began"
            time.sleep(0.01)

    def _run(self, number: int) -> None:
        body = {
            "messages": [{"role": "user", "content": f"{number} the engine plans a step"}],
            "max_tokens": self._max_tokens,
            "ignore_eos": True,
            "stream": True,
        }
        with httpx.Client(base_url=self._url, timeout=START_SECONDS) as client:
            while not self._is_closing:
                self._chat(client, body, number)

    def _chat(self, client: httpx.Client, body: dict[str, Any], number: int) -> None:
        with client.stream("POST", "/v1/chat/completions", json=body) as response:
            for _ in response.iter_lines():
                self._started[number] = True
                if self._is_closing:
                    return

    def __enter__(self) -> Streams:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_closing = True
        for thread in self._threads:
            thread.join(START_SECONDS)
