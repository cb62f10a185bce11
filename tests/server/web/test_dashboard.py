"""The dashboard in a browser, over a server that is at work."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest

from tests.server.paced import PacedServer
from tests.server.streams import Streams
from tests.server.web.conftest import NARROW, WIDE, OpenPage, overflow, wait_until

# How many different colours a canvas shows.
COLORS = """canvas => {
    const data = new Uint32Array(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer);
    return new Set(data).size;
}"""
HOSTILE = "<img src=x onerror=alert(1)>"


def text_of(page: Any, selector: str) -> str:
    return str(page.locator(selector).inner_text())


@pytest.mark.slow
def test_it_shows_a_server_at_work(open_page: OpenPage, server: PacedServer):
    with server.at_pace(0.02), Streams(server.url, count=20, max_tokens=480) as streams:
        streams.wait_for_first_tokens(8)
        page = open_page("/")
        wait_until(page, "document.querySelectorAll('#requests tr').length === 20")
        wait_until(page, "document.getElementById('running').textContent === '8'")
        wait_until(page, "document.getElementById('waiting').textContent === '12'")
        wait_until(page, "document.querySelectorAll('.phase.waiting').length === 12")
        assert text_of(page, "#status") == "ready" and text_of(page, "#model") == "tiny"
        assert page.locator(".map canvas").evaluate(COLORS) >= 3, "free pages and those of requests differ"
        assert page.locator("#steps").evaluate(COLORS) >= 3
        wait_until(page, "parseFloat(document.getElementById('tokens').textContent) > 0")
        assert re.fullmatch(r"[\d.]+ ?m?s p50", text_of(page, "#first-token"))
        before = text_of(page, "#requests tr:first-child .progress span")
        wait_until(
            page,
            "before => document.querySelector('#requests tr:first-child .progress span').textContent !== before",
            arg=before,
        )
    page.wait_for_selector("#no-requests:not([hidden])")
    assert text_of(page, "#running") == "0"


@pytest.mark.slow
def test_a_request_tells_why(open_page: OpenPage, server: PacedServer):
    with server.at_pace(0.02), Streams(server.url, count=20, max_tokens=480) as streams:
        streams.wait_for_first_tokens(8)
        page = open_page("/")
        page.locator("#requests tr:nth-child(20) button").click()
        assert page.locator("#why").is_visible()
        wait_until(page, "document.querySelector('#why-story').textContent.includes('queued with')")
        assert text_of(page, "#why-id").startswith("chatcmpl-")
        page.keyboard.press("Escape")
        assert not page.locator("#why").is_visible()


def test_pages_can_be_asked_about_by_keyboard(open_page: OpenPage):
    page = open_page("/")
    page.wait_for_selector(".map canvas[aria-label*=pages]")
    page.focus(".map canvas")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert re.match(r"Page 1\n", text_of(page, ".tip"))
    page.keyboard.press("Escape")
    assert not page.locator(".tip").is_visible()
    page.hover(".map canvas", position={"x": 3, "y": 3})
    assert text_of(page, ".tip").startswith("Page 0")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_theme_follows_the_system_and_the_button(open_page: OpenPage, scheme: str):
    page = open_page("/", color_scheme=scheme)
    color = "getComputedStyle(document.body).backgroundColor"
    first = page.evaluate(color)
    assert (first == "rgb(18, 19, 23)") == (scheme == "dark")
    page.click("#theme")
    second = page.evaluate(color)
    assert second != first
    page.goto("/playground")
    assert page.evaluate(color) == second, "the choice is remembered"


@pytest.mark.parametrize("size", [WIDE, NARROW, {"width": 800, "height": 600}], ids=["wide", "phone", "tablet"])
def test_nothing_sticks_out(open_page: OpenPage, server: PacedServer, size: dict[str, int]):
    with server.at_pace(0.02), Streams(server.url, count=12, max_tokens=480) as streams:
        streams.wait_for_first_tokens(8)
        page = open_page("/", viewport=size)
        page.wait_for_selector("#requests tr")
        assert overflow(page) == 0


def hostile_state(client: httpx.Client) -> dict[str, Any]:
    """As the server would tell it if ids, names and reasons could hold anything."""
    state: dict[str, Any] = client.get("/debug/state").json()
    request = {"number": 0, "id": HOSTILE * 20, "sample": 0, "phase": "answer", "priority": 0, "prompt_tokens": 1}
    request |= {"cached_tokens": 0, "computed_tokens": 1, "new_tokens": 1, "max_new_tokens": 2, "pages": 1}
    request |= {"preemptions": 0, "age_seconds": 1.0}
    decision = {"request": HOSTILE, "sample": 0, "kind": "admitted", "text": HOSTILE}
    step = {"step": 1, "seconds_ago": 0.1, "milliseconds": 1.0, "rows": 1, "tokens": 1, "drawn": 1}
    return state | {"model": HOSTILE * 9, "requests": [request], "steps": [step | {"decisions": [decision]}]}


def test_names_are_text_and_never_markup(open_page: OpenPage, client: httpx.Client):
    page = open_page("/docs", viewport=NARROW)
    body = json.dumps(hostile_state(client))
    page.route("**/debug/state", lambda route: route.fulfill(body=body, content_type="application/json"))
    page.goto("/")
    page.wait_for_selector("#requests tr")
    assert page.locator("main img, header .model img").count() == 0
    assert HOSTILE in text_of(page, "#decisions")
    assert overflow(page) == 0, "however long the names are"


def test_a_lost_server_is_said_and_found_again(open_page: OpenPage):
    page = open_page("/")
    wait_until(page, "document.getElementById('status').textContent === 'ready'")
    page.route("**/debug/state", lambda route: route.abort())
    page.wait_for_selector("#banner:not([hidden])")
    assert text_of(page, "#status") == "not reached"
    page.unroute("**/debug/state")
    page.wait_for_selector("#banner", state="hidden")


@pytest.mark.parametrize(
    ("status", "shown"), [("down", "no engine"), ("loading", "loading 50%"), ("draining", "finishing")]
)
def test_an_engine_that_is_not_there_is_said(open_page: OpenPage, client: httpx.Client, status: str, shown: str):
    state = client.get("/debug/state").json() | {"pages": [], "steps": [], "requests": []}
    state["engine"] = {"status": status, "num_loaded": 1, "num_to_load": 2, "num_deaths": 1}
    page = open_page("/docs")
    page.route("**/debug/state", lambda route: route.fulfill(json=state))
    page.goto("/")
    wait_until(page, "shown => document.getElementById('status').textContent === shown", arg=shown)
    assert "no engine whose pages" in text_of(page, "#maps-note")
