"""The pages of the server: plain files of this package, and headers that let them load nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from functools import cache
from importlib import resources

from pagoda.server.errors import ApiError
from pagoda.server.exchange import Exchange
from pagoda.server.service import Service

TYPES = {
    ".css": b"text/css; charset=utf-8",
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src {styles}; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    # No string ever becomes markup: what a model writes is text, and the browser holds our own scripts to it.
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
PAGES = ("/", "/playground", "/docs")
_STYLE = re.compile(rb"<style>(.*?)</style>", re.DOTALL)


@cache
def files() -> dict[str, bytes]:
    folder = resources.files("pagoda.server") / "web"
    return {entry.name: entry.read_bytes() for entry in folder.iterdir() if _ending(entry.name) in TYPES}


async def dashboard(exchange: Exchange, service: Service) -> None:
    await _show_page(exchange, service, "dashboard.html")


async def playground(exchange: Exchange, service: Service) -> None:
    await _show_page(exchange, service, "playground.html")


async def page_file(exchange: Exchange, service: Service) -> None:
    name = exchange.path_parameter("file")
    if name not in files() or name.endswith(".html"):
        raise ApiError(404, "not_found_error", "there is no such file", code="unknown_url")
    await exchange.whole(files()[name], page_headers(name))


async def show_sign_in(exchange: Exchange, error: ApiError) -> None:
    """Stands in for a page that needs a key. It has no script, and its style is its own: other files need the key."""
    was_tried = exchange.path == "/session"
    message = error.message.partition(";")[0] if was_tried else ""
    body = files()["sign-in.html"].replace(b"{{message}}", html.escape(message).encode())
    body = body.replace(b"{{page}}", exchange.path.encode() if exchange.path in PAGES else b"/")
    style = _STYLE.search(body)
    digest = base64.b64encode(hashlib.sha256(style[1] if style else b"").digest()).decode()
    headers = [(b"www-authenticate", b"Bearer"), *page_headers("sign-in.html", f"'sha256-{digest}'")]
    await exchange.whole(body, headers, error.status)


def page_headers(name: str, styles: str = "'self'") -> list[tuple[bytes, bytes]]:
    return [
        (b"content-type", TYPES[_ending(name)]),
        (b"content-security-policy", POLICY.format(styles=styles).encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"same-origin"),  # with no-referrer a form would come from the origin "null"
        (b"cross-origin-resource-policy", b"same-origin"),
        (b"cache-control", b"no-cache"),
    ]


async def _show_page(exchange: Exchange, service: Service, name: str) -> None:
    """Where there are keys there is a way to sign out."""
    body = files()[name].replace(b"{{sign-out}}", b"hidden" if service.keys.is_open else b"")
    await exchange.whole(body, page_headers(name))


def _ending(name: str) -> str:
    return name[name.rfind(".") :]
