"""What all answers have in common."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx

from pagoda.core.version import own_version
from tests.server.conftest import OPTIONS
from tests.server.running import RunningServer

CALLS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2},
    "/v1/completions": {"prompt": "hi", "max_tokens": 2},
}


def fingerprints(client: httpx.Client, path: str) -> set[str]:
    """Of the whole answer and of every chunk."""
    with client.stream("POST", path, json=CALLS[path] | {"stream": True}) as response:
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    found = {json.loads(line)["system_fingerprint"] for line in lines[:-1]}
    return found | {client.post(path, json=CALLS[path]).json()["system_fingerprint"]}


def test_one_fingerprint_says_what_really_runs(client: httpx.Client):
    [found] = fingerprints(client, "/v1/chat/completions")
    assert fingerprints(client, "/v1/completions") == {found}
    assert found.startswith(f"pagoda-{own_version()}-cpu-") and "auto" not in found


def test_it_is_known_to_requests_that_came_before_the_engine(client: httpx.Client, tiny_folder: Path):
    with RunningServer(tiny_folder, *OPTIONS) as early, early.client() as other:
        found = fingerprints(other, "/v1/chat/completions")
    assert found == fingerprints(client, "/v1/chat/completions"), "the same settings in another process"
