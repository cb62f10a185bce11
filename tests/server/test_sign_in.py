"""Signing in from a browser, as bytes: the page, the cookie, and what it opens."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.server.conftest import OPTIONS
from tests.server.running import RunningServer

SECRET = "a-key-of-the-tests"
BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.fixture(scope="module")
def guarded(tiny_folder: Path) -> Iterator[RunningServer]:
    with RunningServer(tiny_folder, *OPTIONS, environment={"PAGODA_API_KEY": SECRET}) as running:
        running.wait_until_ready()
        yield running
    assert SECRET not in "".join(running.log)


@pytest.fixture
def browser_client(guarded: RunningServer) -> Iterator[httpx.Client]:
    with guarded.client(headers=BROWSER) as client:
        yield client


@pytest.mark.parametrize("path", ["/", "/playground", "/docs", "/web/dom.js", "/nowhere"])
def test_without_a_key_a_browser_is_asked_for_one(browser_client: httpx.Client, path: str):
    response = browser_client.get(path)
    assert response.status_code == 401 and '<form method="post" action="/session">' in response.text
    policy = response.headers["content-security-policy"]
    style = re.search(r"<style>(.*?)</style>", response.text, re.DOTALL)
    assert style is not None and "<script" not in response.text and "{{" not in response.text
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in policy and "unsafe" not in policy
    wanted = path if path in ("/", "/playground", "/docs") else "/"
    assert f'name="page" value="{wanted}"' in response.text


def test_a_program_still_gets_json(guarded: RunningServer):
    with guarded.client() as client:
        assert client.get("/").json()["error"]["code"] == "invalid_api_key"


@pytest.mark.parametrize("form", [{}, {"key": ""}, {"key": "wrong-wrong"}, {"key": SECRET + "x"}])
def test_a_wrong_key_opens_nothing(browser_client: httpx.Client, form: dict[str, str]):
    response = browser_client.post("/session", data=form, headers={"Content-Type": "application/x-www-form-urlencoded"})
    assert response.status_code == 401 and "set-cookie" not in response.headers
    assert "API key" in response.text and 'role="alert"></p>' not in response.text


def test_the_right_key_opens_everything_until_one_signs_out(browser_client: httpx.Client):
    response = browser_client.post("/session", data={"key": SECRET, "page": "/playground"})
    assert response.status_code == 303 and response.headers["location"] == "/playground"
    cookie = response.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and "Path=/" in cookie and SECRET not in cookie
    assert browser_client.get("/").status_code == 200
    assert browser_client.get("/web/dom.js").status_code == 200
    chat = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    assert browser_client.post("/v1/chat/completions", json=chat).status_code == 200
    name, value = cookie.split(";")[0].split("=", 1)
    assert browser_client.post("/session/end").status_code == 303
    stale = browser_client.get("/", headers={"Cookie": f"{name}={value}"})
    assert stale.status_code == 401, "the session is gone, not only the cookie"


def test_a_wrong_key_in_the_header_is_not_mended_by_a_cookie(browser_client: httpx.Client):
    browser_client.post("/session", data={"key": SECRET})
    assert browser_client.get("/v1/models").status_code == 200
    assert browser_client.get("/v1/models", headers={"Authorization": "Bearer wrong"}).status_code == 401


def test_one_is_sent_to_no_page_but_ours(browser_client: httpx.Client):
    for page in ("https://evil.example/", "//evil.example", "/v1/models", "/\r\nset-cookie: a=b"):
        response = browser_client.post("/session", data={"key": SECRET, "page": page})
        assert response.headers["location"] == "/"


def test_odd_cookies_and_bodies_are_taken_calmly(browser_client: httpx.Client):
    for cookie in ("=", ";;;", 'pagoda_session_1="', "a=b; c", "\xff=\xfe", "x" * 5000):
        assert browser_client.get("/", headers=[(b"cookie", cookie.encode("latin-1"))]).status_code == 401
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    assert browser_client.post("/session", content=b"\xff\x00&&&=%zz", headers=kind).status_code == 401
    assert browser_client.post("/session", content=b"key=" + b"a" * 5000, headers=kind).status_code == 413


def test_pages_of_other_origins_cannot_use_the_cookie(browser_client: httpx.Client):
    browser_client.post("/session", data={"key": SECRET})
    assert browser_client.get("/debug/state", headers={"Origin": "http://localhost:1"}).status_code == 403
