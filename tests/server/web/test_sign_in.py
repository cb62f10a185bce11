"""A server with keys, in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.conftest import OPTIONS
from tests.server.running import RunningServer
from tests.server.web.conftest import NARROW, OpenPage, overflow

SECRET = "a-key-of-the-tests"


@pytest.fixture(scope="module")
def guarded(tiny_folder: Path) -> Iterator[RunningServer]:
    with RunningServer(tiny_folder, *OPTIONS, environment={"PAGODA_API_KEY": SECRET}) as running:
        running.wait_until_ready()
        yield running


def test_the_pages_ask_for_the_key_once(open_page: OpenPage, guarded: RunningServer):
    page = open_page("/playground", guarded.url, viewport=NARROW)
    assert overflow(page) == 0
    page.fill("#key", "wrong-wrong")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=the API key is not known")
    page.goto("/playground")
    page.fill("#key", SECRET)
    page.keyboard.press("Enter")
    page.wait_for_selector("#composer")
    page.click("summary")
    page.fill("[name=max_tokens]", "3")
    page.fill("#message", "hi")
    page.keyboard.press("Enter")
    page.wait_for_selector(".message.assistant:not([aria-busy]) .notes button")
    assert page.locator(".problem").count() == 0
    page.click("text=Dashboard")
    page.wait_for_selector("#status.good")
    assert page.evaluate("document.cookie") == "", "no script can read the cookie"
    page.click("text=Sign out")
    page.wait_for_selector("#key")
    page.goto("/")
    assert page.locator("#key").is_visible()


def test_a_session_that_ended_leads_back_to_the_form(open_page: OpenPage, guarded: RunningServer):
    page = open_page("/", guarded.url)
    page.fill("#key", SECRET)
    page.keyboard.press("Enter")
    page.wait_for_selector("#status.good")
    page.context.clear_cookies()
    page.wait_for_selector("#key")
