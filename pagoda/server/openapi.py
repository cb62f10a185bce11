"""GET /openapi.json and /docs, both made from the table of routes."""

from __future__ import annotations

import html
import re
from typing import Any

import msgspec

from pagoda.core.sampling_params import MAX_LOGPROBS, MAX_STOP_BYTES, MAX_STOP_STRINGS, RANGES
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
ERRORS = {
    "400": "The request is not one that can be answered; `param` names the field",
    "401": "The key is missing or not known",
    "403": "The Host or Origin header names somebody else",
    "404": "There is no such model or path",
    "405": "Another method is wanted here",
    "408": "The request did not come in time",
    "413": "The body is too large",
    "414": "The URL is too long",
    "415": "The body must be JSON",
    "429": "This key has used up its share for now",
    "431": "The header is too large",
    "503": "There is no room, or no engine, for now",
}
FOR_ALL = ("403", "405", "408", "414", "431")
FOR_BODIES = ("400", "404", "413", "415")
FOR_ENGINE = ("429", "503")
# What is checked beside the type and the ranges of the sampling parameters.
CONSTRAINTS: dict[str, dict[str, Any]] = {
    "max_tokens": {"minimum": 0},
    "max_completion_tokens": {"minimum": 1},
    "top_logprobs": {"minimum": 0, "maximum": MAX_LOGPROBS},
    "stop": {"minLength": 1, "maxLength": MAX_STOP_BYTES, "maxItems": MAX_STOP_STRINGS},
    "messages": {"minItems": 1},
    "best_of": {"minimum": 1, "maximum": RANGES["n"].high},
}
CONSTRAINTS_OF = {
    "integer": ("minimum", "maximum"),
    "number": ("minimum", "maximum", "exclusiveMinimum"),
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
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
    for component in components.values():
        _constrain(component)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, by_body)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Pagoda", "version": version},
        "paths": paths,
        "components": {
            "schemas": {**components, "Error": ERROR},
            "responses": {status: _error(meaning) for status, meaning in ERRORS.items()},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _constrain(schema: dict[str, Any]) -> None:
    """Write down what the fields of a record may be, beside their types."""
    for name, field in schema.get("properties", {}).items():
        limits = CONSTRAINTS.get(name) or _range(name)
        for kind in field.get("anyOf", [field]):
            allowed = CONSTRAINTS_OF.get(kind.get("type", ""), ())
            kind |= {key: value for key, value in limits.items() if key in allowed}


def _range(name: str) -> dict[str, Any]:
    found = RANGES.get(name)
    if found is None:
        return {}
    lower = "exclusiveMinimum" if getattr(found, "open_below", False) else "minimum"
    return {lower: found.low, "maximum": found.high}


def _error(meaning: str) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {"description": meaning, "content": content}


def _responses(route: Route) -> dict[str, Any]:
    statuses = {*FOR_ALL, *(FOR_BODIES if route.body is not None else ()), *(FOR_ENGINE if route.needs_engine else ())}
    if not route.is_open or route.redirects:
        statuses.add("401")
    if _PARAMETER.search(route.path):
        statuses.add("404")
    if route.path == "/ready":
        statuses.add("503")
    responses: dict[str, Any] = {"200": {"description": "The answer", "content": {kind: {} for kind in route.answers}}}
    if route.redirects:
        responses = {"303": {"description": "See there"}}
    for status in sorted(statuses):
        responses[status] = {"$ref": f"#/components/responses/{status}"}
    return responses


def _operation(route: Route, by_body: dict[Any, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": f"{route.method.lower()}{re.sub(r'[^a-zA-Z0-9]+', '_', route.path)}",
        "responses": _responses(route),
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
