"""A server as the comparison sees it: a process that answers on a port, and clients that read their streams over HTTP.

No imports but the standard library; the same clients for every server."""

from __future__ import annotations

import http.client
import itertools
import json
import re
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from tasks import Outcome, Task


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(frozen=True)
class Dialect:
    """How one server is asked for a stream of tokens."""

    ready_path: str
    path: str
    body: dict[str, Any]
    """What every request says, beside its prompt."""
    length_field: str
    token_mark: bytes
    """Stands in the events that bring text, and in no others."""
    total: re.Pattern[bytes]
    """How many tokens there were, in the last events. One that is half a character is sent with the next."""


@dataclass
class Stream:
    """What one client saw."""

    times: list[float] = field(default_factory=list)
    num_tokens: int = 0


class Server:
    def __init__(self, command: list[str], port: int, dialect: Dialect) -> None:
        self.port = port
        self.dialect = dialect
        self.process = subprocess.Popen(command, stdout=sys.stderr)
        while not self.is_ready():
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended with {self.process.returncode}")
            time.sleep(0.05)

    def is_ready(self) -> bool:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            connection.request("GET", self.dialect.ready_path)
            return connection.getresponse().status == 200
        except OSError:
            return False

    def ask(self, prompt: list[int], num_output: int, found: Stream) -> None:
        """One client: note when text came, and how many tokens the server says it was."""
        body = {**self.dialect.body, "prompt": prompt, self.dialect.length_field: num_output, "stream": True}
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("POST", self.dialect.path, json.dumps(body), {"Content-Type": "application/json"})
        for line in connection.getresponse():
            if line.startswith(b"data: ") and self.dialect.token_mark in line:
                found.times.append(time.monotonic())
            if total := self.dialect.total.search(line):
                found.num_tokens = int(total[1])

    def run(self, task: Task) -> Outcome:
        prompts = task.prompts()
        streams = [Stream() for _ in prompts]
        clients = [
            threading.Thread(target=self.ask, args=(prompt, task.num_output, mine))
            for prompt, mine in zip(prompts, streams, strict=True)
        ]
        start = time.monotonic()
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        end = time.monotonic()
        counts = sorted(mine.num_tokens for mine in streams)
        if set(counts) != {task.num_output}:
            raise RuntimeError(f"wanted {task.num_output} tokens of each stream, got {counts}")
        stall = max((b - a for mine in streams for a, b in itertools.pairwise(mine.times)), default=0.0)
        if task.times_decoding:
            start = max(mine.times[0] for mine in streams)
        return Outcome(end - start, stall if len(prompts) > 1 else None)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()
