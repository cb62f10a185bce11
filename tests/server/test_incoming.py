"""Connections as no well-behaved client uses them."""

from __future__ import annotations

import json
import time

import httpx

from tests.server.paced import PacedServer
from tests.server.raw_http import answer_to, connect, head, status_of

PATIENCE = 20.0
SLOWLY = 0.1
"""At this pace a long stream takes twice as long as is waited for its end."""
JSON_TYPE = ("Content-Type", "application/json")


def long_stream() -> bytes:
    body = json.dumps({"prompt": "hi", "stream": True, "max_tokens": 400, "ignore_eos": True}).encode()
    return head("POST", "/v1/completions", [JSON_TYPE, ("Content-Length", str(len(body)))]) + body


def until_nothing_runs(client: httpx.Client) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        text = client.get("/metrics").text
        if 'pagoda_requests_open{model_name="tiny"} 0.0' in text and 'running{model_name="tiny"} 0.0' in text:
            return
        time.sleep(0.02)
    raise AssertionError("a request that nobody waits for still runs")


def test_what_is_no_http_gets_an_error_like_all_others(server: PacedServer):
    for words in (
        b"\x00\x01\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/1.1\r\nBad Header: x\r\n\r\n",
        b"\x16\x03\x01" * 20,
    ):
        answer, _ = answer_to(server.url, [words])
        assert status_of(answer) == 400
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "invalid_http"


def test_requests_that_come_in_one_piece_are_answered_in_turn(server: PacedServer):
    closing = head("GET", "/nowhere", [("Connection", "close")])
    with connect(server.url) as connection:
        connection.sendall(head("GET", "/health") + head("GET", "/version") + closing)
        answer = b""
        while data := connection.recv(1 << 16):
            answer += data
    assert [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]] == [200, 200, 404]


def test_a_client_that_leaves_with_another_request_behind_the_first_is_noticed(
    server: PacedServer, client: httpx.Client
):
    with server.at_pace(SLOWLY):
        with connect(server.url) as connection:
            connection.sendall(long_stream() + long_stream())
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200")
        until_nothing_runs(client)


def test_what_is_no_http_behind_a_request_ends_its_answer_and_is_not_mixed_into_it(
    server: PacedServer, client: httpx.Client
):
    with server.at_pace(SLOWLY):
        with connect(server.url) as connection:
            connection.sendall(long_stream())
            answer = connection.recv(1 << 16)
            connection.sendall(b"\x00\x00\x00\r\n\r\n")
            while data := connection.recv(1 << 16):
                answer += data
        assert answer.count(b"HTTP/1.1") == 1 and b"[DONE]" not in answer
        until_nothing_runs(client)


def test_a_connection_outlives_a_body_that_was_refused(client: httpx.Client):
    huge = b" " * ((8 << 20) + 1)
    for _ in range(2):
        response = client.post("/v1/chat/completions", content=huge, headers={"Content-Type": "application/json"})
        assert response.status_code == 413
    assert client.get("/health").status_code == 200
