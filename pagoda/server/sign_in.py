"""Signing in from a browser: a key is given once, in a form, and a cookie that no script can read stands for it."""

from __future__ import annotations

from urllib.parse import parse_qs

from pagoda.server.exchange import Exchange
from pagoda.server.keys import ApiKey
from pagoda.server.pages import PAGES
from pagoda.server.service import Service
from pagoda.server.sessions import SESSION_SECONDS

MAX_FORM_BYTES = 4096
FORM_TYPE = b"application/x-www-form-urlencoded"


def key_of(exchange: Exchange, service: Service) -> ApiKey:
    """Who is calling: by the key itself, or by the cookie where no key was sent."""
    authorization, x_api_key = _sent_keys(exchange)
    if not authorization and not x_api_key:
        key = service.sessions.find(_session_of(exchange))
        if key is not None:
            return key
    return service.keys.find(authorization, x_api_key)


async def sign_in(exchange: Exchange, service: Service) -> None:
    """The key is in the body, which is why this route is asked without one; a wrong one is refused like anywhere."""
    authorization, x_api_key = _sent_keys(exchange)
    page = "/"
    if exchange.headers.get(b"content-type", b"").split(b";")[0].strip().lower() == FORM_TYPE:
        form = parse_qs((await exchange.read_bytes(MAX_FORM_BYTES)).decode("utf-8", "replace"))
        x_api_key = form.get("key", [""])[0].strip().encode()
        page = form.get("page", [""])[0]
    key = service.keys.find(authorization, x_api_key)
    cookie = _set_cookie(exchange, service.sessions.begin(key), SESSION_SECONDS)
    await exchange.whole(b"", [(b"location", page.encode() if page in PAGES else b"/"), cookie], 303)


async def sign_out(exchange: Exchange, service: Service) -> None:
    service.sessions.end(_session_of(exchange))
    await exchange.whole(b"", [(b"location", b"/"), _set_cookie(exchange, "", 0)], 303)


def _sent_keys(exchange: Exchange) -> tuple[bytes, bytes]:
    return exchange.headers.get(b"authorization", b""), exchange.headers.get(b"x-api-key", b"")


def _cookie_name(exchange: Exchange) -> str:
    """Browsers keep the cookies of all ports of a machine together: each server has a name of its own."""
    server = exchange.scope.get("server")
    return f"pagoda_session_{server[1]}" if server else "pagoda_session"


def _session_of(exchange: Exchange) -> str:
    wanted = _cookie_name(exchange)
    for pair in exchange.headers.get(b"cookie", b"").decode("latin-1").split(";"):
        name, _, value = pair.strip().partition("=")
        if name == wanted:
            return value
    return ""


def _set_cookie(exchange: Exchange, value: str, seconds: int) -> tuple[bytes, bytes]:
    parts = [f"{_cookie_name(exchange)}={value}", "Path=/", f"Max-Age={seconds}", "HttpOnly", "SameSite=Strict"]
    if exchange.scope.get("scheme") == "https":
        parts.append("Secure")
    return b"set-cookie", "; ".join(parts).encode()
