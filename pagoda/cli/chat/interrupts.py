"""Ctrl-C as a request to stop, seen between two steps of the engine, where stopping leaves nothing half done."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType


class CatchInterrupts:
    """While the context lasts, Ctrl-C only sets `seen`; pressed again, it raises KeyboardInterrupt after all."""

    def __init__(self) -> None:
        self._num_seen = 0

    @property
    def seen(self) -> bool:
        return self._num_seen > 0

    def __enter__(self) -> CatchInterrupts:
        self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._num_seen += 1
        if self._num_seen > 1:
            raise KeyboardInterrupt
