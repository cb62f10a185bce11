"""The table of routes: what is answered, by whom, and who may ask. `/openapi.json` is made from it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from pagoda.server.errors import ApiError
from pagoda.server.exchange import Exchange
from pagoda.server.service import Service

Handler = Callable[[Exchange, Service], Awaitable[None]]
_PARAMETER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Route:
    method: str
    path: str
    """`{name}` stands for one part of the path, or for several where it comes last."""
    handler: Handler
    summary: str
    body: Any = None
    """The record that the body is read into."""
    is_open: bool = False
    """Answered without an API key."""
    answers: tuple[str, ...] = ("application/json",)
    """Content types of the answer."""
    needs_engine: bool = False
    """It may be refused for the time being."""
    redirects: bool = False


class RouteTable:
    def __init__(self, routes: list[Route]) -> None:
        self.routes = routes
        self._exact: dict[str, dict[str, Route]] = {}
        self._patterns: list[tuple[re.Pattern[str], dict[str, Route]]] = []
        for route in routes:
            self._methods_of(route.path)[route.method] = route

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        """The route and the parts of the path that it names."""
        methods = self._exact.get(path)
        parameters: dict[str, str] = {}
        if methods is None:
            methods, parameters = self._match(path)
        if methods is None:
            raise ApiError(404, "not_found_error", f"there is nothing at {path[:200]}", code="unknown_url")
        # What answers GET answers HEAD: uvicorn leaves the body out.
        route = methods.get("GET" if method == "HEAD" else method)
        if route is None:
            allowed = ", ".join(sorted(methods))
            raise ApiError(
                405,
                "invalid_request_error",
                f"{path[:200]} takes {allowed}, not {method[:20]}",
                code="method_not_allowed",
                allow=allowed + (", HEAD" if "GET" in methods else ""),
            )
        return route, parameters

    def is_open(self, path: str) -> bool:
        methods = self._exact.get(path)
        return methods is not None and all(route.is_open for route in methods.values())

    def _match(self, path: str) -> tuple[dict[str, Route] | None, dict[str, str]]:
        for pattern, methods in self._patterns:
            found = pattern.fullmatch(path)
            if found is not None:
                return methods, found.groupdict()
        return None, {}

    def _methods_of(self, path: str) -> dict[str, Route]:
        if "{" not in path:
            return self._exact.setdefault(path, {})
        names = _PARAMETER.sub(lambda name: f"(?P<{name[1]}>{'.+' if path.endswith(name[0]) else '[^/]+'})", path)
        for pattern, methods in self._patterns:
            if pattern.pattern == names:
                return methods
        self._patterns.append((re.compile(names), {}))
        return self._patterns[-1][1]
