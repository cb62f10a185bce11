"""An engine that takes as many steps as it is let: what a test wants to meet under way is under way."""

from __future__ import annotations

import math
import threading
import time
from typing import Any

from pagoda.engine.loop import EngineLoop


class Turnstile:
    """Stands before each step of a loop, shut until told otherwise."""

    def __init__(self, loop: EngineLoop) -> None:
        self._step = loop.step
        self._changed = threading.Condition()
        self._num_left, self._pause = 0.0, 0.0
        setattr(loop, "step", self._pass)  # noqa: B010 (mypy would have a method stay what it is)

    def let(self, num_steps: float, pause: float = 0.0) -> None:
        """So many steps from now, each after a pause of seconds."""
        with self._changed:
            self._num_left, self._pause = num_steps, pause
            self._changed.notify_all()

    def open(self) -> None:
        self.let(math.inf)

    def _pass(self, *arguments: Any) -> Any:
        with self._changed:
            self._changed.wait_for(lambda: self._num_left > 0)
            self._num_left -= 1
        time.sleep(self._pause)
        return self._step(*arguments)
