"""The ASGI application: who is calling, what for, and one clear answer whatever happens."""

from __future__ import annotations

import logging
import re
import time
import uuid
from typing import Any
from urllib.parse import SplitResult, urlsplit

from pagoda.core.errors import PagodaError
from pagoda.observability.json_log import current_request_id
from pagoda.server.bodies import ClientGone, Receive
from pagoda.server.call import Call, begin_call
from pagoda.server.config import ListenConfig
from pagoda.server.errors import ApiError, from_engine, internal_error
from pagoda.server.exchange import Exchange, Scope, Send
from pagoda.server.pages import show_sign_in
from pagoda.server.routes import RouteTable
from pagoda.server.service import Service
from pagoda.server.sign_in import key_of

logger = logging.getLogger("pagoda.access")
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
WATCHERS = frozenset({"/health", "/ready", "/metrics"})
"""Asked every few seconds by machines, which make of the answer what they will: not ready yet is no failure."""
POLLED = WATCHERS | {"/debug/state"}
"""Asked again and again, the last by every open dashboard: counted, and not logged while all is well."""
ANY_ADDRESS = frozenset({"0.0.0.0", "::", ""})


class App:
    def __init__(self, service: Service, routes: RouteTable, listen: ListenConfig) -> None:
        self.service = service
        self.routes = routes
        self._origins = frozenset(listen.allowed_origins)
        hosts = {*LOCAL_NAMES, *(name.lower() for name in listen.allowed_hosts)}
        # Whoever listens on all addresses has many names; browsers are still kept out by the Origin header.
        self._hosts = None if listen.host in ANY_ADDRESS and not listen.allowed_hosts else hosts | {listen.host.lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._live(receive, send)
        if scope["type"] != "http":
            return
        exchange = Exchange(scope, receive, send, self.service.limits, request_id_of(scope))
        call = Call(exchange.request_id, time.monotonic())
        begin_call(call)
        current_request_id.set(call.request_id)
        try:
            await self._answer(exchange)
        finally:
            if exchange.path in POLLED:
                self.service.observer.statistics.polls[exchange.path] += 1
            if exchange.status >= 400 and exchange.path not in WATCHERS:
                self.service.observer.statistics.failed[exchange.status] += 1
            self._log(exchange, call)
            if self.service.tracer is not None and exchange.scope["method"] == "POST":
                self.service.tracer.record(exchange, call)

    async def _answer(self, exchange: Exchange) -> None:
        try:
            self._check_origin(exchange)
            path, method = exchange.path, str(exchange.scope["method"])
            if not self.routes.is_open(path):
                exchange.key = key_of(exchange, self.service)
            route, exchange.scope["path_params"] = self.routes.find(method, path)
            await route.handler(exchange, self.service)
        except ClientGone:
            exchange.status = exchange.status or 499
        except ApiError as error:
            await self._fail(exchange, error)
        except PagodaError as error:
            await self._fail(exchange, from_engine(error))
        except Exception:
            logger.exception("the request failed")
            await self._fail(exchange, internal_error())

    async def _fail(self, exchange: Exchange, error: ApiError) -> None:
        if exchange.has_begun:
            return
        if error.status == 401 and exchange.wants_page:
            await show_sign_in(exchange, error)
        else:
            await exchange.error(error)

    def _check_origin(self, exchange: Exchange) -> None:
        """A page from elsewhere must not reach a server on this machine through its user's browser."""
        host = exchange.headers.get(b"host", b"").decode("latin-1").lower()
        name = split_url(f"//{host}").hostname if host else None
        if self._hosts is not None and name not in self._hosts:
            message = "the Host header names another server; allow it with --allowed-hosts"
            raise ApiError(403, "permission_error", message, code="host_not_allowed")
        origin = exchange.headers.get(b"origin")
        if origin is None or origin.decode("latin-1") in self._origins:
            return
        if split_url(origin.decode("latin-1")).netloc.lower() != host:
            message = "calls from pages of this origin are not allowed; allow it with --allowed-origins"
            raise ApiError(403, "permission_error", message, code="origin_not_allowed")

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return

    def _log(self, exchange: Exchange, call: Call) -> None:
        is_well = exchange.status < 400 or exchange.path in WATCHERS
        level = logging.DEBUG if exchange.path in POLLED and is_well else logging.INFO
        if logger.isEnabledFor(level):
            fields: dict[str, Any] = {
                "method": exchange.scope["method"],
                "path": exchange.path[:200],
                "status": exchange.status,
                "seconds": round(time.monotonic() - call.arrival_time, 6),
                "key": exchange.key.name,
            }
            for run in call.runs:
                fields |= run.as_fields()
            logger.log(level, "request", extra={"fields": fields})


def split_url(url: str) -> SplitResult:
    """An URL that is none has no name."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")


def request_id_of(scope: Scope) -> str:
    """The caller's own, if it is one that can be logged; else a new one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return str(value, "ascii")
    return uuid.uuid4().hex
