"""Every route of the server."""

from __future__ import annotations

from pagoda.server import health, pages, sign_in
from pagoda.server.dialects.openai import schema
from pagoda.server.dialects.openai.chat import chat_completions
from pagoda.server.dialects.openai.completions import completions
from pagoda.server.dialects.openai.embeddings import embeddings
from pagoda.server.dialects.openai.models import detokenize, list_models, show_model, tokenize
from pagoda.server.metrics import metrics
from pagoda.server.openapi import docs, openapi
from pagoda.server.routes import Route, RouteTable
from pagoda.server.state import debug_state
from pagoda.server.why import why

HTML = ("text/html",)
WEB_FILES = ("text/css", "text/javascript", "image/svg+xml")
JSON_OR_EVENTS = ("application/json", "text/event-stream")
ROUTES = [
    Route("GET", "/health", health.health, "Whether the server lives", is_open=True),
    Route("GET", "/ready", health.ready, "Whether the server can answer", is_open=True),
    Route("GET", "/version", health.version, "Which version this is"),
    Route("GET", "/metrics", metrics, "Numbers for Prometheus", answers=("text/plain",)),
    Route("GET", "/openapi.json", openapi, "These routes, for machines"),
    Route("GET", "/docs", docs, "These routes, to read", answers=HTML),
    Route("GET", "/", pages.dashboard, "The dashboard", answers=HTML),
    Route("GET", "/playground", pages.playground, "A chat, to try the model", answers=HTML),
    Route("GET", "/web/{file}", pages.page_file, "What those pages are made of", answers=WEB_FILES),
    Route(
        "POST",
        "/session",
        sign_in.sign_in,
        "Sign in from a browser; the key is in the body",
        is_open=True,
        redirects=True,
    ),
    Route("POST", "/session/end", sign_in.sign_out, "Sign out", redirects=True),
    Route("GET", "/debug/state", debug_state, "What runs, what waits, and where the pages are", needs_engine=True),
    Route("GET", "/debug/requests/{id}/why", why, "What the scheduler did with a request, in words", needs_engine=True),
    Route("GET", "/v1/models", list_models, "The models that are here"),
    Route("GET", "/v1/models/{model}", show_model, "One model"),
    Route(
        *("POST", "/v1/chat/completions", chat_completions, "Continue a conversation", schema.ChatRequest),
        answers=JSON_OR_EVENTS,
        needs_engine=True,
    ),
    Route(
        *("POST", "/v1/completions", completions, "Continue a text", schema.CompletionRequest),
        answers=JSON_OR_EVENTS,
        needs_engine=True,
    ),
    Route("POST", "/v1/embeddings", embeddings, "Texts as vectors", schema.EmbeddingRequest, needs_engine=True),
    Route("POST", "/tokenize", tokenize, "Text to token ids", schema.TokenizeRequest),
    Route("POST", "/detokenize", detokenize, "Token ids to text", schema.DetokenizeRequest),
]


def route_table() -> RouteTable:
    return RouteTable(ROUTES)
