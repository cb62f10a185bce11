"""Browsers that signed in: random names that stand for API keys. They live in memory and end with the process."""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable

from pagoda.server.keys import ApiKey

MAX_SESSIONS = 1024
SESSION_SECONDS = 12 * 3600


class Sessions:
    """The oldest makes room for a new one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open: OrderedDict[str, tuple[float, ApiKey]] = OrderedDict()

    def begin(self, key: ApiKey) -> str:
        name = secrets.token_urlsafe(32)
        self._open[name] = (self._clock() + SESSION_SECONDS, key)
        while len(self._open) > MAX_SESSIONS:
            self._open.popitem(last=False)
        return name

    def find(self, name: str) -> ApiKey | None:
        until, key = self._open.get(name, (0.0, None))
        return key if self._clock() < until else None

    def end(self, name: str) -> None:
        self._open.pop(name, None)
