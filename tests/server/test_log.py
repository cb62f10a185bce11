"""What is written down, and what is not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.conftest import OPTIONS
from tests.server.running import RunningServer

MARKER = "a walrus named Archibald"


def lines_of(server: RunningServer) -> list[dict[str, Any]]:
    return [json.loads(line) for line in server.log if line.startswith("{")]


def body(**more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": MARKER}], "max_tokens": 3, "ignore_eos": True, **more}


def send_all(server: RunningServer) -> str:
    """Every way in which a prompt could get into a log; the text of one answer."""
    with server.client() as client:
        good = client.post("/v1/chat/completions", json=body(max_tokens=12), headers={"x-request-id": "good-1"}).json()
        with client.stream("POST", "/v1/chat/completions", json=body(stream=True)) as response:
            list(response.iter_lines())
        with client.stream("POST", "/v1/chat/completions", json=body(stream=True, max_tokens=400)) as response:
            next(response.iter_lines())  # and leave
        client.post("/v1/completions", json={"prompt": [MARKER, MARKER], "max_tokens": 2, "echo": True, "logprobs": 1})
        client.post("/tokenize", json={"prompt": MARKER})
        for bad in (
            body(temperature=MARKER),
            body(model=MARKER),
            body(stop=[MARKER] * 100),
            body(messages=[{"role": MARKER, "content": MARKER}]),
            body(messages=[{"role": "user", "content": MARKER * 1000}]),
            body(tools=[{"type": "function", "function": {"name": MARKER}}]),
        ):
            assert client.post("/v1/chat/completions", json=bad).status_code >= 400
        client.post("/v1/chat/completions", content=MARKER, headers={"Content-Type": "application/json"})
        client.get("/v1/models", params={"prompt": MARKER}, headers={"x-request-id": MARKER})
    return str(good["choices"][0]["message"]["content"])


@pytest.fixture(scope="module")
def talkative(tiny_folder: Path) -> Iterator[tuple[RunningServer, str]]:
    with RunningServer(tiny_folder, *OPTIONS, "--log-level", "debug") as running:
        running.wait_until_ready()
        answer = send_all(running)
    yield running, answer


def test_no_prompt_and_no_answer_is_in_the_log(talkative: tuple[RunningServer, str]):
    server, answer = talkative
    text = "".join(server.log)
    assert len(lines_of(server)) > 20
    for word in MARKER.split()[1:]:
        assert word not in text
    assert len(answer) >= 3 and json.dumps(answer)[1:-1] not in text


def test_a_request_is_told_by_one_id_in_both_processes(talkative: tuple[RunningServer, str]):
    server, _ = talkative
    mine = [line for line in lines_of(server) if line.get("request_id") == "good-1"]
    told = [(line["logger"], line["message"]) for line in mine]
    assert sorted(told) == [
        ("pagoda.access", "request"),
        ("pagoda.engine.requests", "accepted"),
        ("pagoda.engine.requests", "finished"),
        ("pagoda.engine.requests", "started"),
        ("pagoda.requests", "accepted"),
    ]
    [end] = [line for line in mine if line["message"] == "request"]
    assert end["status"] == 200 and end["new_tokens"] == 12 and end["finish_reasons"] == ["length"]
    assert 0 <= end["queue_seconds"] <= end["first_token_seconds"] <= end["seconds"]
    assert end["prompt_tokens"] > 0 and end["engine_id"].startswith("chatcmpl-")


def test_every_line_about_a_request_has_its_id(talkative: tuple[RunningServer, str]):
    for line in lines_of(talkative[0]):
        about_requests = line["logger"] in ("pagoda.requests", "pagoda.engine.requests", "pagoda.access")
        assert not about_requests or line["request_id"], line
        assert {"time", "level", "logger", "message"} <= line.keys()


def test_texts_are_written_where_that_was_asked_for(tiny_folder: Path):
    with RunningServer(tiny_folder, *OPTIONS, "--log-prompts") as running:
        running.wait_until_ready()
        with running.client() as client:
            answer = client.post("/v1/chat/completions", json=body(), headers={"x-request-id": "asked"}).json()
    [line] = [line for line in lines_of(running) if line["message"] == "texts"]
    assert MARKER in line["prompts"][0] and line["request_id"] == "asked"
    assert line["answers"] == {"0": [answer["choices"][0]["message"]["content"]]}


def test_plan_and_actual_are_told_when_the_engine_is_ready(talkative: tuple[RunningServer, str]):
    [line] = [line for line in lines_of(talkative[0]) if line["message"] == "the engine is ready"]
    assert line["planned_bytes"] == line["allocated_bytes"] and line["planned_bytes"]["pages"] > 0
    assert line["planned_process_bytes"].keys() == line["resident_process_bytes"].keys()


def test_polls_do_not_fill_the_log_and_are_counted(tiny_folder: Path):
    polled = ("/health", "/ready", "/metrics", "/debug/state")
    secret = "a-long-secret"
    with RunningServer(tiny_folder, *OPTIONS, environment={"PAGODA_API_KEY": secret}) as running:
        running.wait_until_ready()
        with running.client(headers={"Authorization": f"Bearer {secret}"}) as client:
            for _ in range(5):
                assert [client.get(path).status_code for path in polled] == [200] * 4
            client.get("/version")
            counted = client.get("/metrics").text
        with running.client() as stranger:
            assert stranger.get("/debug/state").status_code == 401
    told = [(line["path"], line["status"]) for line in lines_of(running) if line["logger"] == "pagoda.access"]
    assert told == [("/version", 200), ("/debug/state", 401)], "what goes wrong is told all the same"
    for path in ("/metrics", "/debug/state"):
        assert f'pagoda_polls_total{{model_name="tiny",path="{path}"}} 5.0' in counted


def test_polls_are_in_a_log_that_tells_everything(talkative: tuple[RunningServer, str]):
    paths = [line["path"] for line in lines_of(talkative[0]) if line["logger"] == "pagoda.access"]
    assert "/ready" in paths
