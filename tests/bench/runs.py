"""Runs that were never measured: requests with times that a test knows."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from pagoda.bench.client import Outcome
from pagoda.bench.load import Run


def outcome(sent: float, times: Sequence[float], ended: float | None = None, error: str = "", **more: int) -> Outcome:
    counts = {"num_prompt": 10, "num_output": len(times), **more}
    end = times[-1] if ended is None else ended
    return Outcome(sent, end, array("d", times), error=error, message=f"about {error}", **counts)


def run_of(outcomes: Sequence[Outcome], started: float = 0.0, ended: float = 10.0) -> Run:
    return Run(started=started, ended=ended, outcomes=list(outcomes), is_warm=True)
