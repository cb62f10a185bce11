"""Why the scheduler did what it did: a code and a few numbers, never text, so that noting one costs nothing."""

from __future__ import annotations

from enum import IntEnum

import msgspec


class Reason(IntEnum):
    REFUSED = 0
    QUEUED = 1
    WAITS_FOR_ROW = 2
    WAITS_FOR_BUDGET = 3
    WAITS_FOR_PAGES = 4
    WAITS_FOR_PREFIX = 5
    WAITS_FOR_RESULTS = 6
    ADMITTED = 7
    RESUMED = 8
    CHUNKED = 9
    SAT_OUT = 10
    FORKED = 11
    PREEMPTED = 12
    FINISHED = 13
    CANCELLED = 14
    PAUSED = 15
    CONTINUED = 16
    MADE_WAY = 17


class Decision(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="decision"):
    """`values` and `other` (a second request) mean what `words.py` says for the reason."""

    step_id: int
    request_id: str
    sample_index: int
    reason: Reason
    values: tuple[int, ...] = ()
    other: str = ""
