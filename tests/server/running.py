"""A whole server for a test: supervisor, HTTP process and engine process, as `pagoda serve` starts them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

START_SECONDS = 60.0
LISTENING = re.compile(r"listening on (\S+)")


class RunningServer:
    def __init__(self, model: Path | str, *options: str, environment: dict[str, str] | None = None) -> None:
        command = [sys.executable, "-m", "pagoda", "serve", str(model), "--port", "0", *options]
        self._process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})}
        )
        self.log: list[str] = []
        self.url = ""
        self._heard = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._heard.wait(START_SECONDS) or not self.url:
            self.stop()
            raise AssertionError("the server did not start:\n" + "".join(self.log))

    @property
    def pid(self) -> int:
        return self._process.pid

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60.0, **options)

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        with self.client() as client:
            while time.monotonic() < deadline:
                if client.get("/ready").status_code == 200:
                    return
                time.sleep(0.02)
        raise AssertionError("the engine did not become ready:\n" + "".join(self.log))

    def children(self) -> dict[str, int]:
        """Process ids by what they run."""
        found = {}
        for pid in _children_of(self.pid):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"pagoda.engine.process" in words:
                found["engine"] = pid
            if b"pagoda.server.process" in words:
                found["http"] = pid
        return found

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self, seconds: float = START_SECONDS) -> int:
        return self._process.wait(seconds)

    def stop(self) -> int:
        if self._process.poll() is None:
            self.signal(signal.SIGTERM)
            try:
                self._process.wait(START_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
        code = self._process.wait()
        self._reader.join(5)
        return code

    def __enter__(self) -> RunningServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.log.append(line)
            found = LISTENING.search(line)
            if found:
                self.url = found[1]
                self._heard.set()
        self._heard.set()


def _children_of(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield int(child)
