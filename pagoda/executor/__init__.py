"""Runs a plan on a device: rows, pages, the step, and what memory they take."""

from __future__ import annotations

from pagoda.executor.base import Executor
from pagoda.executor.local import LocalExecutor
from pagoda.executor.memory import CacheDemand, FixedCosts, MemoryPlan
from pagoda.executor.pages import PageStore
from pagoda.executor.rows import WorkerRows

__all__ = ["CacheDemand", "Executor", "FixedCosts", "LocalExecutor", "MemoryPlan", "PageStore", "WorkerRows"]
