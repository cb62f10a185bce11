"""The loop and its front doors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pagoda.engine.output import CompletionOutput, Logprob, RequestMetrics, RequestOutput

if TYPE_CHECKING:
    from pagoda.engine.client import AsyncLLM
    from pagoda.engine.llm import LLM

__all__ = ["LLM", "AsyncLLM", "CompletionOutput", "Logprob", "RequestMetrics", "RequestOutput"]


def __getattr__(name: str) -> Any:
    """Whoever asks no questions at once need not wait for asyncio, and a server's own process has no model to load."""
    if name == "AsyncLLM":
        from pagoda.engine.client import AsyncLLM

        return AsyncLLM
    if name == "LLM":
        from pagoda.engine.llm import LLM

        return LLM
    raise AttributeError(f"module 'pagoda.engine' has no attribute {name!r}")
