"""GET /openapi.json and /docs, both made from the table of routes."""

from __future__ import annotations

import html
import re
from typing import Any

import msgspec

from pagoda.server.exchange import Exchange
from pagoda.server.routes import Route
from pagoda.server.service import Service

_PARAMETER = re.compile(r"\{(\w+)\}")
ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
            "required": ["message", "type", "param", "code"],
        }
    },
    "required": ["error"],
}
STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code, pre { font-family: ui-monospace, monospace; font-size: .9em; }
section { border-top: 1px solid #8884; padding: .5rem 0 1rem; }
h2 { font-size: 1.1rem; margin: .5rem 0; }
table { border-collapse: collapse; width: 100%; }
td, th { text-align: left; padding: .15rem .75rem .15rem 0; vertical-align: top; }
.method { display: inline-block; min-width: 4rem; font-weight: 600; }
"""


def document(routes: list[Route], version: str) -> dict[str, Any]:
    bodies = [route.body for route in routes if route.body is not None]
    schemas, components = msgspec.json.schema_components(bodies, ref_template="#/components/schemas/{name}")
    by_body = dict(zip(bodies, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, by_body)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Pagoda", "version": version},
        "paths": paths,
        "components": {
            "schemas": {**components, "Error": ERROR},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route, by_body: dict[Any, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": f"{route.method.lower()}{re.sub(r'[^a-zA-Z0-9]+', '_', route.path)}",
        "responses": {
            "200": {"description": "The answer"},
            "default": {
                "description": "An error",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
            },
        },
        "security": [] if route.is_open else [{"key": []}],
    }
    names = _PARAMETER.findall(route.path)
    if names:
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
        ]
    if route.body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": by_body[route.body]}},
        }
    return operation


def page(routes: list[Route], version: str) -> str:
    """A page that needs nothing from elsewhere."""
    sections = "".join(_section(route) for route in routes)
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>Pagoda API</title><style>{STYLE}</style><h1>Pagoda {html.escape(version)}</h1>"
        f"<p>The same as <a href=openapi.json>openapi.json</a>, to read.</p>{sections}</html>"
    )


def _section(route: Route) -> str:
    rows = ""
    if route.body is not None:
        for field in msgspec.structs.fields(route.body):
            needed = "required" if field.required else ""
            kind = html.escape(str(field.type).replace("typing.", "").replace("NoneType", "null"))
            rows += f"<tr><td><code>{field.encode_name}</code><td><code>{kind}</code><td>{needed}"
    table = f"<table><tr><th>field<th>type<th></tr>{rows}</table>" if rows else ""
    title = f"<span class=method>{route.method}</span> <code>{html.escape(route.path)}</code>"
    return f"<section><h2>{title}</h2><p>{html.escape(route.summary)}.</p>{table}</section>"


async def openapi(exchange: Exchange, service: Service) -> None:
    await exchange.json(service.openapi)


async def docs(exchange: Exchange, service: Service) -> None:
    await exchange.whole(service.docs_page.encode(), [(b"content-type", b"text/html; charset=utf-8")])
