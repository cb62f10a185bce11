"""GET /debug/state of a running server."""

from __future__ import annotations

import base64
import json
import time
from array import array
from typing import Any

import httpx

from tests.server.paced import PacedServer
from tests.server.streams import Streams

KEYS = {"model", "version", "engine", "now", "latency", "history", "requests", "pages", "steps"}


def test_an_idle_server_has_nothing_under_way(client: httpx.Client):
    deadline = time.monotonic() + 10
    while (state := client.get("/debug/state").json())["requests"] and time.monotonic() < deadline:
        time.sleep(0.1)
    assert state.keys() > KEYS and state["model"] == "tiny"
    assert state["engine"]["status"] == "ready" and state["engine"]["max_num_seqs"] == 8
    assert state["requests"] == [] and state["now"]["num_running"] == 0
    (group,) = state["pages"]
    cells = array("H", base64.b64decode(group["cells"]))
    assert len(cells) == group["num_pages"] == state["engine"]["num_pages"][0] and group["stride"] == 1
    assert set(cells) <= {0, 1}, "nobody holds a page"


def test_what_runs_and_what_waits_is_told(server: PacedServer, client: httpx.Client):
    with server.at_pace(0.02), Streams(server.url, count=11, max_tokens=480) as streams:
        streams.wait_for_first_tokens(8)
        state = wait_for(client, lambda state: [r["phase"] for r in state["requests"]][8:] == ["waiting"] * 3)
        phases = [request["phase"] for request in state["requests"]]
        assert set(phases[:8]) <= {"prompt", "answer"}
        for request in state["requests"][:8]:
            assert request["id"].startswith("chatcmpl-") and request["pages"] > 0 and request["age_seconds"] > 0
            assert request["max_new_tokens"] == 480
        (group,) = state["pages"]
        cells = array("H", base64.b64decode(group["cells"])).tolist()
        for index, number in enumerate(group["owners"]):
            (owner,) = (request for request in state["requests"] if request["number"] == number)
            assert 0 < cells.count(4 + index) <= owner["pages"]
        told = [decision["kind"] for step in state["steps"] for decision in step["decisions"]]
        assert "admitted" in told or len(state["steps"]) == 128, "those who started did so in the steps that are shown"
        assert all(step["rows"] <= 8 and step["milliseconds"] > 0 for step in state["steps"])
    wait_for(client, lambda state: not state["requests"])


def test_latencies_and_rates_follow_what_was_drawn(client: httpx.Client):
    before = client.get("/debug/state").json()["now"]
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 40, "ignore_eos": True}
    usage = client.post("/v1/chat/completions", json=body).json()["usage"]
    state = client.get("/debug/state").json()
    assert state["now"]["num_new_tokens"] - before["num_new_tokens"] == usage["completion_tokens"] == 40
    assert state["now"]["num_prompt_tokens"] - before["num_prompt_tokens"] == usage["prompt_tokens"]
    for name in ("first_token", "between_tokens"):
        found = state["latency"][name]["since_start"]
        assert found["count"] > 0 and 0 < found["p50"] <= found["p95"] <= found["p99"]
    assert 0 <= state["now"]["hit_rate"]["since_start"] <= 1


def test_it_tells_no_path_and_no_text(client: httpx.Client):
    body = {"messages": [{"role": "user", "content": "a very private matter"}], "max_tokens": 5}
    client.post("/v1/chat/completions", json=body)
    text = json.dumps(client.get("/debug/state").json())
    assert "private" not in text and "/tmp" not in text and "tiny-llama" not in text


def wait_for(client: httpx.Client, is_there: Any) -> dict[str, Any]:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        state: dict[str, Any] = client.get("/debug/state").json()
        if is_there(state):
            return state
        time.sleep(0.05)
    raise AssertionError(f"never so: {state['now']}")
