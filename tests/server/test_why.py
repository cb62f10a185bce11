"""What became of a request, asked by the id that the client was shown."""

from __future__ import annotations

from typing import Any

import httpx

BODY: dict[str, Any] = {"prompt": "the engine plans", "temperature": 0, "max_tokens": 4, "ignore_eos": True}


def test_a_story_is_found_by_the_answers_id_and_by_the_request_id(client: httpx.Client):
    response = client.post("/v1/completions", json=BODY | {"n": 2}, headers={"x-request-id": "my-own-1"})
    name = response.json()["id"]
    story = client.get(f"/debug/requests/{name}/why").json()
    assert story["id"] == name
    (request,) = story["requests"]
    assert request["id"] == f"{name}-0"
    told = {(line["sample"], line["reason"]): line for line in request["decisions"]}
    assert {(0, "queued"), (0, "admitted"), (1, "forked"), (0, "finished"), (1, "finished")} <= told.keys()
    assert told[0, "queued"]["why"].startswith("queued with")
    assert told[0, "admitted"]["seconds"] >= 0
    assert client.get("/debug/requests/my-own-1/why").json()["requests"] == story["requests"]
    assert client.get(f"/debug/requests/{name}-0/why").json()["requests"] == story["requests"]


def test_every_prompt_of_a_call_has_its_story(client: httpx.Client):
    name = client.post("/v1/completions", json=BODY | {"prompt": ["a page", "who waits"]}).json()["id"]
    story = client.get(f"/debug/requests/{name}/why").json()
    assert [request["id"] for request in story["requests"]] == [f"{name}-0", f"{name}-1"]


def test_an_id_that_nobody_had(client: httpx.Client):
    response = client.get("/debug/requests/nobody/why")
    assert response.status_code == 404 and response.json()["error"]["code"] == "request_not_found"
