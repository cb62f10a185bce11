"""By when a request must be finished: the least of what its body, its header and the server say."""

from __future__ import annotations

import math

from pagoda.server.errors import bad_request
from pagoda.server.exchange import Exchange

HEADER = "X-Request-Timeout"


def deadline_of(exchange: Exchange, timeout: float | None, most: float | None) -> float | None:
    """On the monotonic clock, counted from the request's arrival. `timeout` is the body's, `most` the server's."""
    header = exchange.headers.get(HEADER.lower().encode())
    asked = {"timeout": timeout, HEADER: _number(header) if header is not None else None}
    for name, seconds in asked.items():
        if seconds is not None and not 0 < seconds < math.inf:
            raise bad_request(name, "must be a number of seconds, more than 0")
    known = [seconds for seconds in (*asked.values(), most) if seconds is not None]
    return exchange.arrived + min(known) if known else None


def _number(value: bytes) -> float:
    try:
        return float(value)
    except ValueError:
        return math.nan
