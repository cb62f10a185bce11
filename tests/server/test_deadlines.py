"""A request that takes longer than it may: an error with its status before the first byte, an event after it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.fakes.lookup_model import write_lookup_model
from tests.server.paced import PacedServer

LONG: dict[str, Any] = {"prompt": "H", "max_tokens": 60_000, "temperature": 0, "ignore_eos": True}


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A server with one row whose model never ends, and which gives a request two seconds."""
    model = write_lookup_model(tmp_path_factory.mktemp("model") / "m.gguf", context=65_536, ends=False)
    options = ("--num-threads", "1", "--max-num-seqs", "1", "--num-pages", "5000", "--request-timeout", "2")
    with PacedServer(model, *options) as server:
        server.wait_until_ready()
        with server.at_pace(0.001), server.client() as client:
            yield client


def gauge(client: httpx.Client, name: str) -> float:
    (line,) = (line for line in client.get("/metrics").text.splitlines() if line.startswith(f"pagoda_{name}{{"))
    return float(line.split()[-1])


def until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 10
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def is_idle(client: httpx.Client) -> bool:
    return until(lambda: gauge(client, "kv_cache_usage_ratio") == 0)


@pytest.mark.parametrize(
    ("fields", "headers"), [({"timeout": 0.2}, {}), ({}, {"X-Request-Timeout": "0.2"}), ({}, {})], ids=str
)
def test_an_answer_that_takes_too_long_is_an_error(endless: httpx.Client, fields: dict, headers: dict):
    start = time.monotonic()
    response = endless.post("/v1/completions", json=LONG | fields, headers=headers)
    assert response.status_code == 408
    error = response.json()["error"]
    assert error["type"] == "timeout_error" and error["code"] == "deadline_exceeded"
    assert time.monotonic() - start >= (0.2 if fields or headers else 2)
    assert is_idle(endless)


def test_a_stream_ends_in_an_error_event(endless: httpx.Client):
    with endless.stream("POST", "/v1/completions", json=LONG | {"stream": True, "timeout": 0.3}) as response:
        assert response.status_code == 200
        lines = [line for line in response.iter_lines() if line]
    assert len(lines) > 1
    assert json.loads(lines[-1].removeprefix("data: "))["error"]["code"] == "deadline_exceeded"
    assert is_idle(endless)


def test_one_that_waits_in_the_queue_is_given_up_there(endless: httpx.Client):
    def occupy() -> None:
        with httpx.Client(base_url=endless.base_url, timeout=60) as other:
            other.post("/v1/completions", json=LONG)

    first = threading.Thread(target=occupy)
    first.start()
    assert until(lambda: gauge(endless, "requests_running") == 1)
    waited = endless.post("/v1/completions", json=LONG | {"timeout": 1.0}, headers={"x-request-id": "queued"})
    assert waited.status_code == 408

    def reasons() -> list[str]:
        found = endless.get("/debug/requests/queued/why")
        story = found.json()["requests"][0]["decisions"] if found.status_code == 200 else []
        return [line["reason"] for line in story]

    assert until(lambda: reasons()[-1:] == ["cancelled"]) and "admitted" not in reasons()
    first.join()
    assert is_idle(endless)


@pytest.mark.parametrize("value", [0, -1, "soon"])
def test_a_time_that_is_none_is_refused_by_name(endless: httpx.Client, value: object):
    response = endless.post("/v1/completions", json=LONG | {"timeout": value})
    assert response.status_code == 400 and response.json()["error"]["param"] == "timeout"


@pytest.mark.parametrize("value", ["", "soon", "nan", "-3", "0"])
def test_a_header_that_is_no_time_is_refused_by_name(endless: httpx.Client, value: str):
    response = endless.post("/v1/completions", json=LONG, headers={"X-Request-Timeout": value})
    assert response.status_code == 400 and response.json()["error"]["param"] == "X-Request-Timeout"
