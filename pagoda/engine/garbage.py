"""Python's garbage collector, which stops everything where it likes: not in the midst of a batch."""

from __future__ import annotations

import gc
from types import TracebackType

TURNS_BETWEEN = 256


class CollectorAtRest:
    """While it lasts, only young objects are looked through, and only where the caller says that there is time.

    To look through half a million token ids that somebody waits for takes as long as some steps do.
    """

    def __init__(self) -> None:
        self._was_enabled = False
        self._num_turns = 0

    def __enter__(self) -> CollectorAtRest:
        self._was_enabled = gc.isenabled()
        gc.disable()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._was_enabled:
            gc.enable()

    def look(self) -> None:
        """Through what was made since the last time; what is still in use is not looked at again."""
        self._num_turns = 0
        if self._was_enabled:
            gc.collect(1)

    def pass_turn(self) -> None:
        """There is time now, in this turn of many."""
        self._num_turns += 1
        if self._num_turns >= TURNS_BETWEEN:
            self.look()
