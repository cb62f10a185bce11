"""How much may be under way: a queue with an end, and an honest answer to when there will be room again."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pagoda.server.config import QueueConfig
from pagoda.server.errors import ApiError
from pagoda.server.keys import ApiKey

REMEMBERED_SECONDS = 30.0
LONGEST_RETRY_SECONDS = 120.0
MOST_AT_ONCE = 256


class Admission:
    """Counts requests and prompt tokens from the door to the end of the answer."""

    def __init__(self, queue: QueueConfig, num_rows: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._queue = queue
        self._num_rows = num_rows
        self._clock = clock
        self._ended: deque[float] = deque()
        self.num_open = 0
        self.num_open_tokens = 0
        self.is_draining = False
        self.num_refused = 0

    def set_rows(self, num_rows: int) -> None:
        """Requests that run are not in the queue: so many may."""
        self._num_rows = num_rows

    @property
    def num_at_once(self) -> int:
        """So many inputs of one call for embeddings are under way together: enough to keep every row busy, and there is
        still a queue for others. The rest of the call waits its turn outside."""
        return min(2 * self._num_rows, self._num_rows + self._queue.max_queued_requests, MOST_AT_ONCE)

    @contextmanager
    def enter(self, key: ApiKey, num_requests: int, num_tokens: int, spent: int | None = None) -> Iterator[None]:
        """`num_requests` and `num_tokens` are under way at once; the key pays for the tokens of the whole call."""
        self._check(num_requests, num_tokens)
        key.enter(num_tokens if spent is None else spent, self._clock())
        self.num_open += num_requests
        self.num_open_tokens += num_tokens
        try:
            yield
        finally:
            key.leave()
            self.num_open -= num_requests
            self.num_open_tokens -= num_tokens
            self._ended.extend([self._clock()] * num_requests)
            self._forget()

    def check_room(self) -> None:
        """Refuse where not even the smallest request would be taken, before anything is made of this one."""
        self._check(1, 0)

    def retry_after(self, num_over: int) -> float:
        """Seconds until so many of those under way will have ended, by how many did in the last half minute."""
        self._forget()
        if not self._ended:
            return 1.0 if self.num_open <= self._num_rows else LONGEST_RETRY_SECONDS / 4
        seconds = max(self._clock() - self._ended[0], 0.1)
        return min(max(1.0, num_over * seconds / len(self._ended)), LONGEST_RETRY_SECONDS)

    def _check(self, num_requests: int, num_tokens: int) -> None:
        if self.is_draining:
            raise ApiError(503, "overloaded_error", "the server is shutting down", code="shutting_down", retry_after=5)
        most = self._num_rows + self._queue.max_queued_requests
        over = self.num_open + num_requests - most
        if over > 0:
            raise self._full(f"{self._queue.max_queued_requests} requests wait already", over)
        if self.num_open > self._num_rows and self.num_open_tokens + num_tokens > self._queue.max_queued_tokens:
            raise self._full(f"{self.num_open_tokens} prompt tokens wait already", num_requests)

    def _full(self, why: str, num_over: int) -> ApiError:
        self.num_refused += 1
        wait = self.retry_after(num_over)
        message = f"the queue is full: {why}; try again in {round(wait)} s"
        return ApiError(503, "overloaded_error", message, code="queue_full", retry_after=wait)

    def _forget(self) -> None:
        horizon = self._clock() - REMEMBERED_SECONDS
        while self._ended and self._ended[0] < horizon:
            self._ended.popleft()
