"""The loop and its front doors."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pagoda.engine.client import AsyncLLM
    from pagoda.engine.llm import LLM
    from pagoda.engine.output import CompletionOutput, Logprob, RequestMetrics, RequestOutput

__all__ = ["LLM", "AsyncLLM", "CompletionOutput", "Logprob", "RequestMetrics", "RequestOutput"]

_MODULES = {"LLM": "pagoda.engine.llm", "AsyncLLM": "pagoda.engine.client"}


def __getattr__(name: str) -> Any:
    """Whoever asks no questions at once need not wait for asyncio, a server's own process has no model to load, and its
    supervisor has nothing to compute."""
    if name in __all__:
        return getattr(importlib.import_module(_MODULES.get(name, "pagoda.engine.output")), name)
    raise AttributeError(f"module 'pagoda.engine' has no attribute {name!r}")
