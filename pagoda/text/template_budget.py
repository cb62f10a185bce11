"""What rendering one template may cost: processor time, loop steps, text, and the size of any single value."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from jinja2.runtime import Undefined

from pagoda.core.errors import TemplateError

_NODE_BYTES = 8
MAX_NUMBER_BITS = 4096
# Text captured by macros and blocks is written once more where it is used, so this much passes through in all.
_CAPTURE_FACTOR = 8
# The garbage of the whole process may be collected while a template renders, which is not the template's doing.
_MAX_COLLECTING_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class TemplateLimits:
    cpu_seconds: float = 0.25
    max_output_bytes: int = 1 << 20
    max_iterations: int = 100_000
    max_source_bytes: int = 1 << 16


class TemplateBudget:
    """The running account of one rendering. Every guard below charges it, and it raises when a limit is passed."""

    def __init__(self, limits: TemplateLimits, input_bytes: int) -> None:
        self._limits = limits
        self._deadline = time.thread_time() + limits.cpu_seconds
        self._thread = threading.get_ident()
        self._collecting_since = 0.0
        self._collecting_seconds = 0.0
        self._num_iterations = 0
        self._num_written = 0
        # No value may outgrow what a template could sensibly make of its input.
        self.max_value_bytes = limits.max_output_bytes + 2 * input_bytes

    def check_time(self) -> None:
        # Processor time of this thread: a busy machine must not make an honest template fail.
        if time.thread_time() > self._deadline:
            raise TemplateError(f"the chat template took more than {self._limits.cpu_seconds * 1000:.0f} ms to render")

    def collector_runs(self, phase: str, _info: dict[str, int]) -> None:
        """Called by the garbage collector; its time is given back, up to a limit."""
        if threading.get_ident() != self._thread:
            return
        now = time.thread_time()
        if phase == "start":
            self._collecting_since = now
        elif self._collecting_seconds < _MAX_COLLECTING_SECONDS:
            seconds = min(now - self._collecting_since, _MAX_COLLECTING_SECONDS - self._collecting_seconds)
            self._collecting_seconds += seconds
            self._deadline += seconds

    def count_iterations(self, num_iterations: int = 1) -> None:
        self._num_iterations += num_iterations
        if self._num_iterations > self._limits.max_iterations:
            raise TemplateError(f"the chat template went round its loops more than {self._limits.max_iterations} times")
        self.check_time()

    def write(self, text: str) -> None:
        self._num_written += len(text)
        if self._num_written > self._limits.max_output_bytes * _CAPTURE_FACTOR:
            raise self._too_much_text()
        self.check_time()

    def check_output(self, text: str) -> None:
        if len(text) > self._limits.max_output_bytes or len(text.encode("utf-8")) > self._limits.max_output_bytes:
            raise self._too_much_text()

    def allow_size(self, num_bytes: int | float) -> None:
        """Refuse a value of that size before it is made."""
        if num_bytes > self.max_value_bytes:
            raise TemplateError(f"the chat template made a value of more than {self.max_value_bytes} bytes")

    def check_value(self, value: Any) -> Any:
        """Refuse a value that is too large counted as a tree, however much of it is shared."""
        if isinstance(value, str):
            self.allow_size(len(value))
        elif isinstance(value, int):
            if value.bit_length() > MAX_NUMBER_BITS:
                raise TemplateError("the chat template made a number of more than a thousand digits")
        elif isinstance(value, list | tuple | dict):
            self.allow_size(measure(value, self.max_value_bytes))
        self.check_time()
        return value

    def _too_much_text(self) -> TemplateError:
        return TemplateError(f"the chat template wrote more than {self._limits.max_output_bytes} bytes")


def measure(value: Any, enough: float = float("inf")) -> int:
    """Bytes of `value` counted as a tree of plain data; counting ends once it is past `enough`."""
    num_bytes = 0
    waiting = [value]
    while waiting and num_bytes <= enough:
        current = waiting.pop()
        num_bytes += _NODE_BYTES
        if isinstance(current, str):
            num_bytes += len(current)
        elif isinstance(current, dict):
            waiting.extend(current)
            waiting.extend(current.values())
        elif isinstance(current, list | tuple):
            waiting.extend(current)
    return num_bytes


_current: ContextVar[TemplateBudget] = ContextVar("template_budget")


def current_budget() -> TemplateBudget:
    return _current.get()


@contextmanager
def spending(budget: TemplateBudget) -> Iterator[None]:
    token = _current.set(budget)
    gc.callbacks.append(budget.collector_runs)
    try:
        yield
    finally:
        gc.callbacks.remove(budget.collector_runs)
        _current.reset(token)


def counted(iterable: Any) -> Iterator[Any]:
    """Iterate at the expense of the budget."""
    budget = current_budget()
    for item in iterable:
        budget.count_iterations()
        yield item


def counted_list(value: Any) -> list[Any]:
    """All items of `value`, refused before they are gathered where their number is known."""
    if isinstance(value, Undefined):
        return []
    budget = current_budget()
    if hasattr(value, "__len__"):
        budget.allow_size(len(value) * _NODE_BYTES)
        budget.check_time()
        return list(value)
    return list(counted(value))
