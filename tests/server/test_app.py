"""The door: keys, hosts, origins, sizes, and errors that tell nothing of the machine."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import httpx
import pytest

from pagoda.server.route_table import ROUTES
from tests.server.conftest import OPTIONS
from tests.server.raw_http import answer_to, head, status_of
from tests.server.running import RunningServer

CHAT = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
SECRET = "a-key-of-the-tests"


@pytest.fixture(scope="module")
def guarded(tiny_folder: Path) -> Iterator[RunningServer]:
    with RunningServer(tiny_folder, *OPTIONS, environment={"PAGODA_API_KEY": SECRET}) as running:
        running.wait_until_ready()
        yield running


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_every_route_but_health_needs_the_key(guarded: RunningServer, route):
    path = route.path.replace("{model}", "tiny")
    with guarded.client() as client:
        bare = client.request(route.method, path)
        wrong = client.request(route.method, path, headers={"Authorization": "Bearer wrong"})
        right = client.request(route.method, path, headers={"Authorization": f"Bearer {SECRET}"})
        other = client.request(route.method, path, headers={"x-api-key": SECRET})
    if route.path in ("/health", "/ready"):
        assert bare.status_code == wrong.status_code == 200
        return
    assert bare.status_code == wrong.status_code == 401
    assert bare.json()["error"]["type"] == "authentication_error" and "WWW-Authenticate" in bare.headers
    assert right.status_code != 401 and other.status_code != 401


PATHS = sorted({re.sub(r"{\w+}", "tiny", route.path) for route in ROUTES})
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND")
CLOSING = [("Content-Length", "0"), ("Connection", "close")]
OPEN_PATHS = {route.path for route in ROUTES if route.is_open}


def test_the_key_is_on_no_command_line(guarded: RunningServer):
    """Everybody on the machine can read those."""
    for pid in (guarded.pid, *guarded.children().values()):
        assert SECRET.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_what_is_open():
    assert {"/health", "/ready", "/session"} == OPEN_PATHS, "a session begins with the key in the body"


def disguises(path: str) -> list[str]:
    """Other ways to write a path, some of which a careless server takes for one that is open."""
    first, rest = path[1:2], path[2:]
    return [
        *(path, f"{path}/", f"/{path}", f"{path}?a=1", f"{path};a", f"{path}%00", f"{path}%2F", f"{path}/."),
        *(f"/%{ord(first or '/'):02x}{rest}", f"/health/..{path}", f"/health%2F..{path}", f"/ready/../{path[1:]}"),
        *(path.upper(), f"/health%3F{path}", f"//localhost{path}", f"/.{path}"),
    ]


@pytest.mark.parametrize("path", PATHS)
def test_no_method_and_no_spelling_of_a_path_gets_by_without_the_key(guarded: RunningServer, path: str):
    for written in disguises(path):
        for method in METHODS if written == path else ("GET", "POST"):
            answer, _ = answer_to(guarded.url, [head(method, written, CLOSING)])
            status = status_of(answer)
            if unquote(written.partition("?")[0]) in OPEN_PATHS:
                assert status in (200, 401, 405), (method, written)
            else:
                assert status == 401, (method, written)


def test_what_is_not_there_needs_the_key_too(guarded: RunningServer):
    with guarded.client() as client:
        assert client.get("/nowhere").status_code == 401
        assert client.options("/v1/models", headers={"Origin": guarded.url}).status_code == 401
        assert SECRET not in "".join(guarded.log)


def test_the_body_must_be_json(client: httpx.Client):
    data = json.dumps(CHAT).encode()
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        response = client.post("/v1/chat/completions", content=data, headers={"Content-Type": kind})
        assert response.status_code == 415
    response = client.post("/v1/chat/completions", content=b"{", headers={"Content-Type": "application/json"})
    assert response.status_code == 400 and response.json()["error"]["code"] == "invalid_json"
    for body in (b"\x00", b'{"messages": "\xff"}', b"", b"[]", b"null", b'{"messages": [' * 100):
        response = client.post("/v1/chat/completions", content=body, headers={"Content-Type": "application/json"})
        assert response.status_code == 400, body[:20]


def test_bodies_and_headers_have_a_size(client: httpx.Client):
    huge = b'{"messages": "' + b"a" * (8 << 20) + b'"}'
    response = client.post("/v1/chat/completions", content=huge, headers={"Content-Type": "application/json"})
    assert response.status_code == 413

    def slowly() -> Iterator[bytes]:
        for _ in range(9):
            yield b"a" * (1 << 20)

    response = client.post("/v1/chat/completions", content=slowly(), headers={"Content-Type": "application/json"})
    assert response.status_code == 413
    response = client.get("/v1/models", headers={f"x-{number}": "1" for number in range(101)})
    assert response.status_code == 431


def test_deep_json_is_refused(client: httpx.Client):
    for depth, status in ((60, 200), (70, 400), (100_000, 400)):
        nested = "[" * depth + "]" * depth
        body = json.dumps(CHAT)[:-1] + f', "metadata": {nested}}}'
        response = client.post("/v1/chat/completions", content=body, headers={"Content-Type": "application/json"})
        assert response.status_code == status, depth


def test_pages_from_elsewhere_are_kept_out(client: httpx.Client):
    assert client.get("/v1/models", headers={"Host": "evil.example"}).status_code == 403
    assert client.get("/v1/models", headers={"Origin": "https://evil.example"}).status_code == 403
    for odd in ("[", "[::1", "a]b", "http://[", "null", "\xff"):
        assert client.get("/v1/models", headers={"Host": odd.encode("latin-1")}).status_code == 403
        assert client.get("/v1/models", headers={"Origin": odd.encode("latin-1")}).status_code == 403
    assert client.get("/v1/models", headers={"Origin": str(client.base_url).rstrip("/")}).status_code == 200


def test_what_is_not_there(client: httpx.Client):
    response = client.get("/nowhere")
    assert response.status_code == 404 and response.json()["error"]["code"] == "unknown_url"
    response = client.get("/v1/chat/completions")
    assert response.status_code == 405 and "POST" in response.json()["error"]["message"]
    assert response.headers["allow"] == "POST"


def test_a_request_id_is_given_back(client: httpx.Client):
    assert client.get("/health", headers={"x-request-id": "mine.1"}).headers["x-request-id"] == "mine.1"
    assert len(client.get("/health", headers={"x-request-id": "bad id"}).headers["x-request-id"]) == 32


def test_models_tokenize_and_version(client: httpx.Client):
    [model] = client.get("/v1/models").json()["data"]
    assert model["id"] == "tiny" and model["object"] == "model" and model["max_model_len"] == 512
    assert client.get("/v1/models/tiny").json() == model
    assert client.get("/v1/models/a/b").status_code == 404
    found = client.post("/tokenize", json={"prompt": "the engine", "return_token_strs": True}).json()
    assert found["count"] == len(found["tokens"]) == len(found["token_strs"])
    assert client.post("/detokenize", json={"tokens": found["tokens"]}).json() == {"prompt": "the engine"}
    assert client.post("/detokenize", json={"tokens": [10**9]}).status_code == 400
    chat = client.post("/tokenize", json={"messages": [{"role": "user", "content": "hi"}]}).json()
    assert chat["count"] > 0
    assert client.get("/version").json()["version"]


def test_metrics_have_our_names_and_vllms(client: httpx.Client):
    client.post("/v1/chat/completions", json=CHAT)
    text = client.get("/metrics").text
    for name in ("pagoda_requests_running", "vllm:num_requests_running", "vllm:time_to_first_token_seconds_bucket"):
        assert name in text
    assert "vllm:generation_tokens_total{" in text
