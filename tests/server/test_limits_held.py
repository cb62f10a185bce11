"""Every line of the table of limits over HTTP: at the limit, one beyond it, and at 10^18 or as much as can be sent."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pagoda.server.limits import Limits
from tests.server.conftest import OPTIONS
from tests.server.raw_http import answer_to, connect, head, status_of
from tests.server.running import RunningServer

LIMITS = Limits()
HUGE = 10**18
CONTEXT = 512
JSON_TYPE = ("Content-Type", "application/json")
MESSAGES = [{"role": "user", "content": "hi"}]
MOST_SENT = 4 << 20  # an endless header must have been refused before so much of it was sent
Pieces = Iterable[bytes]


def post(path: str, body: bytes) -> Pieces:
    yield head("POST", path, [JSON_TYPE, ("Content-Length", str(len(body)))]) + body


def chat(**fields: Any) -> Pieces:
    return post("/v1/chat/completions", json.dumps({"messages": MESSAGES, "max_tokens": 1} | fields).encode())


def text(**fields: Any) -> Pieces:
    return post("/v1/completions", json.dumps({"prompt": "a", "max_tokens": 1} | fields).encode())


def embeddings(**fields: Any) -> Pieces:
    return post("/v1/embeddings", json.dumps(fields).encode())


def fitting(size: int, bytes_each: int) -> int:
    """As many of them as a body can hold."""
    return min(size, (LIMITS.max_body_bytes - 200) // bytes_each)


def body_of(size: int) -> Pieces:
    if size == HUGE:
        return [head("POST", "/v1/chat/completions", [JSON_TYPE, ("Content-Length", str(size))])]
    body = json.dumps({"messages": MESSAGES, "max_tokens": 1}).encode()
    return post("/v1/chat/completions", body + b" " * (size - len(body)))


def header_of(size: int) -> Pieces:
    if size == HUGE:
        return itertools.chain([b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Long: "], itertools.repeat(b"a" * 4096))
    rest = size - len("Hostlocalhost") - len("X-Long")
    return [head("GET", "/health", [("X-Long", "a" * rest)])]


def headers_of(count: int) -> Pieces:
    if count == HUGE:
        return itertools.chain([b"GET /health HTTP/1.1\r\nHost: localhost\r\n"], itertools.repeat(b"a: 1\r\n" * 100))
    return [head("GET", "/health", [(f"x-{number}", "1") for number in range(count - 1)])]


def url_of(size: int) -> Pieces:
    if size == HUGE:
        return itertools.chain([b"GET /health?"], itertools.repeat(b"a" * 4096))
    return [head("GET", "/health?" + "a" * (size - len("/health?")))]


def depth_of(size: int) -> Pieces:
    depth = fitting(size, 2) - 1
    body = json.dumps({"messages": MESSAGES, "max_tokens": 1})[:-1]
    return post("/v1/chat/completions", f'{body}, "metadata": {"[" * depth}{"]" * depth}}}'.encode())


# For each line: what asks for so much of it, and the answer that refuses it (status, and what is in the error).
CASES: dict[str, tuple[Callable[[int], Pieces], int, str]] = {
    "max_body_bytes": (body_of, 413, "body_too_large"),
    "max_header_bytes": (header_of, 431, "header_too_large"),
    "max_headers": (headers_of, 431, "header_too_large"),
    "max_url_bytes": (url_of, 414, "url_too_long"),
    "max_json_depth": (depth_of, 400, "json_too_deep"),
    "max_n": (lambda size: chat(n=size), 400, '"param":"n"'),
    "max_prompts": (lambda size: text(prompt=["a"] * fitting(size, 5)), 400, "prompts are too many"),
    "max_embedding_inputs": (lambda size: embeddings(input=["a"] * fitting(size, 5)), 400, "inputs are too many"),
    "max_messages": (lambda size: chat(messages=MESSAGES * fitting(size, 36)), 400, "messages are too many"),
    "max_stop": (lambda size: chat(stop=["x"] * fitting(size, 5)), 400, "stop strings are too many"),
    "max_stop_bytes": (lambda size: chat(stop="é" * (fitting(size, 6) // 2) + "x" * (size % 2)), 400, "stop string is"),
    "max_logit_bias": (
        lambda size: chat(logit_bias={str(number): 1 for number in range(fitting(size, 14))}),
        400,
        "entries are too many",
    ),
    "max_logprobs": (lambda size: text(logprobs=size), 400, '"param":"logprobs"'),
    "max_prompt_bytes_per_token": (
        lambda size: text(prompt="a" * fitting(size * CONTEXT, 1)),
        400,
        f"the limit is {8 * CONTEXT}",
    ),
}
LOWERED = {"max_header_seconds": 1, "max_body_seconds": 1, "max_embedding_tokens": 1000}  # to be reached in no time


def test_every_line_has_a_case():
    assert {*CASES, *LOWERED} == set(Limits.__struct_fields__)


@pytest.mark.parametrize("field", CASES)
def test_a_limit_holds(server: RunningServer, field: str):
    make, status, words = CASES[field]
    limit = getattr(LIMITS, field)
    answer, _ = answer_to(server.url, make(limit))
    assert status_of(answer) == 200 or words not in answer.decode(), answer[-300:]
    for size in (limit + 1, HUGE):
        answer, num_sent = answer_to(server.url, make(size))
        assert status_of(answer) == status and words in answer.decode(), (size, answer[-300:])
        assert num_sent < max(MOST_SENT, LIMITS.max_body_bytes + 4096)
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["type"] == "invalid_request_error"
    with server.client() as client:
        assert client.get("/health").status_code == 200


def test_the_limits_that_have_a_value_within_them_are_taken(server: RunningServer):
    for field in ("max_body_bytes", "max_header_bytes", "max_headers", "max_url_bytes", "max_json_depth", "max_n"):
        answer, _ = answer_to(server.url, CASES[field][0](getattr(LIMITS, field)))
        assert status_of(answer) == 200, (field, answer[-300:])


@pytest.fixture(scope="module")
def hasty(tiny_folder: Path) -> Iterator[RunningServer]:
    options = [(f"--{name.replace('_', '-')}", str(value)) for name, value in LOWERED.items()]
    with RunningServer(tiny_folder, *OPTIONS, *itertools.chain(*options)) as running:
        running.wait_until_ready()
        yield running


def trickle(first: bytes, piece: bytes) -> Iterator[bytes]:
    yield first
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        yield piece


BODY_HEAD = head("POST", "/v1/chat/completions", [JSON_TYPE, ("Content-Length", "1000")])


@pytest.mark.parametrize(
    "first",
    [b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", BODY_HEAD + b"{"],
    ids=["max_header_seconds", "max_body_seconds"],
)
def test_what_comes_too_slowly_is_refused(hasty: RunningServer, first: bytes):
    for pieces in ([first], trickle(first, b" ")):  # one that stops, and one that never does
        answer, _ = answer_to(hasty.url, pieces, pause=0.1)
        assert status_of(answer) == 408 and b"request_timeout" in answer


def test_what_comes_slowly_but_in_time_is_answered(hasty: RunningServer):
    request = head("GET", "/health")
    answer, _ = answer_to(hasty.url, [request[:10], request[10:]], pause=0.2)
    assert status_of(answer) == 200


def test_many_headers_that_never_end_are_closed_and_others_do_not_notice(hasty: RunningServer):
    sockets = [connect(hasty.url) for _ in range(200)]
    for connection in sockets:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
    with hasty.client() as client:
        assert [client.get("/health").status_code for _ in range(20)] == [200] * 20
    for connection in sockets:
        with connection:
            assert status_of(connection.recv(4096)) == 408


def test_the_tokens_of_all_inputs_together_have_a_limit(hasty: RunningServer):
    limit = LOWERED["max_embedding_tokens"]
    for num_tokens, status in ((limit, 200), (limit + 1, 400), (2_000_000, 400)):
        whole = [[5] * 250] * (num_tokens // 250)
        rest = [[5] * (num_tokens % 250)] * bool(num_tokens % 250)
        answer, _ = answer_to(hasty.url, embeddings(input=(whole + rest)[: LIMITS.max_embedding_inputs]))
        assert status_of(answer) == status, answer[-300:]
        assert status == 200 or b"tokens are too many" in answer
