"""The clients of the comparison against a server whose every event is known."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

WORKERS = Path(__file__).parents[4] / "benchmarks" / "cpu" / "workers"
SERVER = """
import http.server, json, sys, time

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"
    def do_GET(self):
        self.send_response(200 if self.path == "/ready" else 404)
        self.end_headers()
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert body["stream"] and body["greedy"] and self.path == "/go", body
        self.send_response(200)
        self.end_headers()
        total = body["length"] if len(body["prompt"]) > int(sys.argv[2]) else 1
        for number in range(total):
            if number == 3:
                continue  # half a character: it comes with the next token
            self.wfile.write(b'data: {"token":%d}\\n\\n' % number)
            self.wfile.flush()
            time.sleep(0.4 if number == 1 and body["prompt"][0] % 2 else 0.0)
        self.wfile.write(b'data: {"total":%d}\\n\\n' % total)

http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(WORKERS))


def start(least_prompt: int):  # type: ignore[no-untyped-def]
    from served import Dialect, Server, free_port

    port = free_port()
    dialect = Dialect("/ready", "/go", {"greedy": True}, "length", b'"token":', re.compile(rb'"total":(\d+)'))
    return Server([sys.executable, "-c", SERVER, str(port), str(least_prompt)], port, dialect)


@pytest.mark.usefixtures("workers")
def test_the_longest_stall_is_that_of_one_stream() -> None:
    from tasks import Task

    server = start(0)
    try:
        outcome = server.run(Task("t", 8, 4, 6, False))
    finally:
        server.stop()
    assert outcome.longest_stall is not None
    assert 0.4 <= outcome.longest_stall <= outcome.seconds


@pytest.mark.usefixtures("workers")
def test_a_stream_that_ends_early_is_no_result() -> None:
    from tasks import Task

    server = start(100)
    try:
        with pytest.raises(RuntimeError, match=r"wanted 6 tokens of each stream, got \[1, 1\]"):
            server.run(Task("t", 2, 4, 6, False))
    finally:
        server.stop()
