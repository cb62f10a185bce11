"""Decisions in plain words, for `pagoda why` and for a server that is asked the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from pagoda.core.errors import PagodaError
from pagoda.scheduler.decisions import Decision, Reason
from pagoda.scheduler.events import PlanMade
from pagoda.scheduler.log import DecisionEntry, DecisionLog, LogFile

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
    Reason.SAT_OUT: "sat out: it needed a page, {1} of {2} could be had, and nobody younger could be pushed back",
    Reason.FORKED: "forked from sample 0 after {0} shared tokens ({1} page(s) copied)",
    Reason.PREEMPTED: "pushed back (time {1} for it): its {0} page(s) were needed by {other}",
    Reason.FINISHED: "finished; pushed back {0} time(s) in all",
    Reason.CANCELLED: "cancelled",
    Reason.PAUSED: "paused: nobody takes what it says; it keeps its {0} page(s) until somebody needs them",
    Reason.CONTINUED: "somebody takes what it says again; it had kept {0} page(s)",
    Reason.MADE_WAY: "made way while it was paused: its row or its {0} page(s) were needed by {other}",
}


def sentence(decision: Decision) -> str:
    other = decision.other or "the operator's order"
    try:
        return SENTENCES[decision.reason].format(*decision.values, other=other)
    except IndexError:
        numbers = ", ".join(map(str, decision.values)) or "no numbers"
        raise PagodaError(f"the log is damaged: {decision.reason.name} came with {numbers}") from None


class Story(msgspec.Struct, frozen=True):
    """What was decided about one request, and when."""

    request_id: str
    decisions: tuple[Decision, ...]
    times: dict[int, float]
    """By step: seconds since the log began; a step that was never planned has none."""


def explain(log: LogFile, request_id: str) -> list[str]:
    """The story of one request, a line for each time something changed for it."""
    decisions = [entry.decision for entry in log.entries if isinstance(entry, DecisionEntry)]
    mine = tuple(decision for decision in decisions if decision.request_id == request_id)
    if not mine:
        raise PagodaError(f"the log says nothing of request {request_id!r}; it knows {_known(decisions)}")
    return tell(Story(request_id, mine, _times(entry for entry in log.entries if isinstance(entry, PlanMade))))


def find_stories(log: DecisionLog, name: str) -> list[Story]:
    """Those of the request called `name`, or of the requests called `name-0`, `name-1` and so on."""
    found: dict[str, list[Decision]] = {}
    plans: list[PlanMade] = []
    for entry in log:
        if isinstance(entry, PlanMade):
            plans.append(entry)
        elif isinstance(entry, Decision):
            stem, _, number = entry.request_id.rpartition("-")
            if entry.request_id == name or (stem == name and number.isdecimal()):
                found.setdefault(entry.request_id, []).append(entry)
    times = _times(plans)
    return [
        Story(request_id, tuple(mine), {step: times[step] for step in {d.step_id for d in mine} & times.keys()})
        for request_id, mine in found.items()
    ]


def tell(story: Story) -> list[str]:
    several = any(decision.sample_index for decision in story.decisions)
    lines = []
    for decision in story.decisions:
        step = decision.step_id
        at = f"{story.times[step]:9.3f} s" if step in story.times else " " * 11
        sample = f" sample {decision.sample_index}: " if several else ""
        lines.append(f"{at}  step {step:>6}  {sample}{sentence(decision)}")
    return lines


def _times(plans: Iterable[PlanMade]) -> dict[int, float]:
    times = {plan.step_id: plan.now for plan in plans}
    start = min(times.values(), default=0.0)
    return {step: now - start for step, now in times.items()}


def _known(decisions: Sequence[Decision]) -> str:
    ids = list(dict.fromkeys(decision.request_id for decision in decisions))
    if not ids:
        return "no request at all"
    return ", ".join(repr(request_id) for request_id in ids[:8]) + (f" and {len(ids) - 8} more" if len(ids) > 8 else "")
