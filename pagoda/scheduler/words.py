"""Decisions in plain words, for `pagoda why`."""

from __future__ import annotations

from collections.abc import Sequence

from pagoda.core.errors import PagodaError
from pagoda.scheduler.decisions import Decision, Reason
from pagoda.scheduler.events import PlanMade
from pagoda.scheduler.log import DecisionEntry, LogFile

# The number at {0} and so on is Decision.values; {other} is the second request.
SENTENCES = {
    Reason.REFUSED: "refused: it could need {0} pages of cache group {2}, and there are {1} in all",
    Reason.QUEUED: "queued with {0} prompt tokens, behind {1} other(s)",
    Reason.WAITS_FOR_ROW: "next in the queue, but all {0} rows were taken",
    Reason.WAITS_FOR_BUDGET: "had to wait: the step's {0} tokens were all given to others",
    Reason.WAITS_FOR_PAGES: "next in the queue, but it needed {0} pages (a spare one for each running row counted in) "
    "and {1} of {2} could be had",
    Reason.WAITS_FOR_PREFIX: "set aside: request {other} is just computing the first {0} tokens, which both share",
    Reason.WAITS_FOR_RESULTS: "pushed back with {0} step(s) still on the device; queues again when they are back",
    Reason.ADMITTED: "started: {0} tokens found in the prefix cache, {1} to compute",
    Reason.RESUMED: "started again: {0} tokens found in the prefix cache, {1} to compute anew",
    Reason.CHUNKED: "its prompt was cut: {0} tokens now, after {1}; {2} were wanted and {3} left in the step's budget",
    Reason.PAUSED: "sat out: it needed a page, {1} of {2} could be had, and nobody younger could be pushed back",
    Reason.FORKED: "forked from sample 0 after {0} shared tokens ({1} page(s) copied)",
    Reason.PREEMPTED: "pushed back (time {1} for it): its {0} page(s) were needed by {other}",
    Reason.FINISHED: "finished; pushed back {0} time(s) in all",
    Reason.CANCELLED: "cancelled",
}


def sentence(decision: Decision) -> str:
    other = decision.other or "the operator's order"
    try:
        return SENTENCES[decision.reason].format(*decision.values, other=other)
    except IndexError:
        numbers = ", ".join(map(str, decision.values)) or "no numbers"
        raise PagodaError(f"the log is damaged: {decision.reason.name} came with {numbers}") from None


def explain(log: LogFile, request_id: str) -> list[str]:
    """The story of one request, a line for each time something changed for it."""
    decisions = [entry.decision for entry in log.entries if isinstance(entry, DecisionEntry)]
    mine = [decision for decision in decisions if decision.request_id == request_id]
    if not mine:
        raise PagodaError(f"the log says nothing of request {request_id!r}; it knows {_known(decisions)}")
    times = {entry.step_id: entry.now for entry in log.entries if isinstance(entry, PlanMade)}
    start = min(times.values(), default=0.0)
    several = any(decision.sample_index for decision in mine)
    lines = []
    for decision in mine:
        at = f"{times[decision.step_id] - start:9.3f} s" if decision.step_id in times else " " * 11
        sample = f" sample {decision.sample_index}:" if several else ""
        lines.append(f"{at}  step {decision.step_id:>6}  {sample}{' ' if several else ''}{sentence(decision)}")
    return lines


def _known(decisions: Sequence[Decision]) -> str:
    ids = list(dict.fromkeys(decision.request_id for decision in decisions))
    if not ids:
        return "no request at all"
    return ", ".join(repr(request_id) for request_id in ids[:8]) + (f" and {len(ids) - 8} more" if len(ids) > 8 else "")
