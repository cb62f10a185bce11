"""One function beside a block of code, for work that leaves the interpreter free most of the time."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import TracebackType

# Between two native calls the function waits for the interpreter; Python's own 5 ms would make it wait too often.
SWITCH_SECONDS = 0.0005


class Background:
    """The function has ended when the block has; an error of either is raised, the block's own first."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function
        self._thread = threading.Thread(target=self._run, name="pagoda-background")
        self._error: BaseException | None = None
        self._switch_seconds = 0.0

    def __enter__(self) -> Background:
        self._switch_seconds = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_SECONDS)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.join()
        sys.setswitchinterval(self._switch_seconds)
        if self._error is not None and error is None:
            raise self._error

    def _run(self) -> None:
        try:
            self._function()
        except BaseException as error:  # raised where the block ends
            self._error = error
