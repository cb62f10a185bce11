"""The tests' own slow server: without its rests, tests of what is under way would race the engine again."""

from __future__ import annotations

import time

import httpx
import pytest

from tests.server.paced import PacedServer

BODY = {"prompt": "hi", "max_tokens": 10, "ignore_eos": True}


@pytest.mark.parametrize("seconds", [0.02, 0.05])
def test_each_step_comes_after_its_rest(server: PacedServer, client: httpx.Client, seconds: float):
    start = time.monotonic()
    with server.at_pace(seconds):
        client.post("/v1/completions", json=BODY).raise_for_status()
    assert time.monotonic() - start >= 10 * seconds


def test_it_is_the_real_engine(server: PacedServer, client: httpx.Client):
    with server.at_pace(0.005):
        slow = client.post("/v1/completions", json=BODY | {"temperature": 0}).json()
    assert client.post("/v1/completions", json=BODY | {"temperature": 0}).json()["choices"] == slow["choices"]
