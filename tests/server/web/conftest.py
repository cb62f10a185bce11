"""Pages in a real browser: Debian's Chromium without a window. Where there is none, these tests are skipped."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.server.running import RunningServer

WIDE, NARROW = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WAIT_MILLISECONDS = 20_000

OpenPage = Callable[..., Any]


@pytest.fixture(scope="module")  # Playwright keeps an event loop open, in which no other test could run
def browser() -> Iterator[Any]:
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("there is no Chromium here; with Debian: apt-get install chromium")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        # In a container the browser is root, which its sandbox does not like; it sees nothing but our own pages.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Any, server: RunningServer) -> Iterator[OpenPage]:
    """Opens a page of the server. In the end nothing may have gone wrong in it or been asked for elsewhere."""
    contexts = []
    problems: list[str] = []

    def open_it(path: str, base: str = server.url, **options: Any) -> Any:
        context = browser.new_context(base_url=base, **{"viewport": WIDE, **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(WAIT_MILLISECONDS)
        page.on("pageerror", lambda error: problems.append(f"error: {error}"))
        page.on("console", lambda said: problems.append(said.text) if is_problem(said) else None)
        page.on("request", lambda asked: problems.append(asked.url) if not asked.url.startswith(base) else None)
        page.goto(path)
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert not problems


def is_problem(said: Any) -> bool:
    """What a server answers with an error is in the console as well; tests look at what the page makes of it."""
    return bool(said.type in ("error", "warning") and not said.text.startswith("Failed to load resource"))


def wait_until(page: Any, expression: str, arg: object = None) -> None:
    """Until the expression is true in the page. Playwright's own way needs eval, which the pages forbid."""
    deadline = time.monotonic() + WAIT_MILLISECONDS / 1000
    while not page.evaluate(expression, arg):
        assert time.monotonic() < deadline, f"never so: {expression}"
        page.wait_for_timeout(50)


def overflow(page: Any) -> int:
    """How many pixels stick out at the right."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))
