"""Ctrl-C between steps, never inside one: a step that is cut in half leaves an engine that cannot go on."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any


class DeferredInterrupts:
    """`deliver` hands on what was held back so far. Only the main thread gets signals; elsewhere nothing is held."""

    def __init__(self) -> None:
        self._held: list[tuple[int, FrameType | None]] = []
        self._previous: Callable[[int, FrameType | None], Any] | None = None

    def __enter__(self) -> DeferredInterrupts:
        previous = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is threading.main_thread() and callable(previous):
            self._previous = previous
            signal.signal(signal.SIGINT, self._hold)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)
        if error is None:
            self.deliver()

    def deliver(self) -> None:
        """Between two steps: what came is given to the caller's own handler, which mostly raises."""
        if self._held and self._previous is not None:
            number, frame = self._held[0]
            self._held.clear()
            self._previous(number, frame)

    def _hold(self, number: int, frame: FrameType | None) -> None:
        self._held.append((number, frame))


def interrupts_deferred() -> DeferredInterrupts:
    """Hold a Ctrl-C back until the block is done, or until it says that one may come."""
    return DeferredInterrupts()
