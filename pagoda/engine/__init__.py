"""The loop and its front doors."""

from __future__ import annotations

from pagoda.engine.client import AsyncLLM
from pagoda.engine.llm import LLM
from pagoda.engine.output import CompletionOutput, Logprob, RequestMetrics, RequestOutput

__all__ = ["LLM", "AsyncLLM", "CompletionOutput", "Logprob", "RequestMetrics", "RequestOutput"]
