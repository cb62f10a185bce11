"""Requests that say nothing of how to draw are drawn as the model's files recommend."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.conftest import OPTIONS
from tests.server.running import RunningServer

RECOMMENDED = {"temperature": 0.0, "repetition_penalty": 1.3}
MESSAGES = [{"role": "user", "content": "the engine plans"}]


@pytest.fixture(scope="module")
def folder(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recommending")
    shutil.copytree(tiny_folder, folder, dirs_exist_ok=True)
    (folder / "generation_config.json").write_text(json.dumps(RECOMMENDED | {"do_sample": True}))
    return folder


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[httpx.Client]:
    with RunningServer(folder, *OPTIONS) as server:
        server.wait_until_ready()
        with server.client() as client:
            yield client


def chat(client: httpx.Client, **fields: Any) -> str:
    body = {"messages": MESSAGES, "max_tokens": 24, "ignore_eos": True} | fields
    response = client.post("/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    return str(response.json()["choices"][0]["message"]["content"])


def text(client: httpx.Client, **fields: Any) -> str:
    body = {"prompt": "the engine plans", "max_tokens": 24, "ignore_eos": True} | fields
    response = client.post("/v1/completions", json=body)
    assert response.status_code == 200, response.text
    return str(response.json()["choices"][0]["text"])


@pytest.mark.parametrize("ask", [chat, text])
def test_what_is_not_said_is_as_recommended(client: httpx.Client, ask: Any):
    expected = ask(client, **RECOMMENDED)
    assert ask(client) == expected and ask(client, temperature=None) == expected
    assert ask(client, seed=1) == expected == ask(client, seed=2), "greedy, whatever the seed"
    assert ask(client, repetition_penalty=1.0) != expected
    assert ask(client, temperature=1.0, seed=1) != ask(client, temperature=1.0, seed=2)


def test_the_model_is_described_with_them(client: httpx.Client):
    [model] = client.get("/v1/models").json()["data"]
    assert model["default_sampling_params"] == RECOMMENDED


def test_they_can_be_left_alone_and_bad_ones_are_refused(folder: Path, tmp_path: Path):
    own = tmp_path / "model"
    shutil.copytree(folder, own)
    (own / "generation_config.json").write_text('{"temperature": "hot"}')
    with pytest.raises(AssertionError, match="generation_config.json: temperature: 'hot' is not a finite number"):
        RunningServer(own, *OPTIONS)
    with RunningServer(own, *OPTIONS, "--generation-config", "none") as server:
        server.wait_until_ready()
        with server.client() as client:
            assert client.get("/v1/models").json()["data"][0]["default_sampling_params"] == {}
            assert chat(client, seed=1) == chat(client, seed=1, temperature=1.0) != chat(client, seed=2)
