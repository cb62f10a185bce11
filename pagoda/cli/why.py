"""`pagoda why`: what the scheduler did with a request, in plain words."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pagoda.scheduler.decisions import Decision
    from pagoda.scheduler.log import LogFile

EXAMPLES = """\
  pagoda run smollm2 "Hello" --decision-log hello.log
  pagoda why hello.log
  pagoda why hello.log 0
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("log", metavar="LOG", help="a file that --decision-log or LLM.save_decision_log wrote")
    parser.add_argument("request", metavar="REQUEST", nargs="?", help="a request's id; without one, all are listed")


def main(args: argparse.Namespace) -> int:
    from pagoda.scheduler.log import load_log
    from pagoda.scheduler.words import explain

    log = load_log(Path(args.log))
    if args.request is None:
        print(request_table(log))
    else:
        print("\n".join(explain(log, args.request)))
    return 0


def request_table(log: LogFile) -> str:
    """One line for each request, in the order in which the log first speaks of them."""
    from pagoda.cli.formatting import format_table
    from pagoda.scheduler.events import PlanMade
    from pagoda.scheduler.log import DecisionEntry

    decisions: dict[str, list[Decision]] = {}
    for entry in log.entries:
        if isinstance(entry, DecisionEntry):
            decisions.setdefault(entry.decision.request_id, []).append(entry.decision)
    if not decisions:
        return "the log tells of no request"
    times = {entry.step_id: entry.now for entry in log.entries if isinstance(entry, PlanMade)}
    rows = [("REQUEST", "PROMPT", "CACHED", "WAITED", "CUT", "PUSHED BACK", "STATE")]
    for request_id, found in decisions.items():
        shown = request_id if request_id.isprintable() and request_id else repr(request_id)
        rows.append((shown, *_summary(found, times)))
    return format_table(rows)


def _summary(decisions: Sequence[Decision], times: Mapping[int, float]) -> tuple[str, str, str, str, str, str]:
    from pagoda.scheduler.decisions import Reason

    first = {decision.reason: decision for decision in reversed(decisions)}
    queued, admitted = first.get(Reason.QUEUED), first.get(Reason.ADMITTED)
    waited = "-"
    if queued and admitted and {queued.step_id + 1, admitted.step_id} <= times.keys():
        # A request is queued between two steps: the next one is the first that could have taken it.
        waited = f"{times[admitted.step_id] - times[queued.step_id + 1]:.3f} s"
    num_preempted = sum(decision.reason is Reason.PREEMPTED for decision in decisions)
    return (
        f"{queued.values[0]} tokens" if queued and queued.values else "-",
        f"{admitted.values[0]} tokens" if admitted and admitted.values else "-",
        waited,
        "yes" if Reason.CHUNKED in first else "no",
        f"{num_preempted} times" if num_preempted != 1 else "once",
        _state(decisions[-1].reason),
    )


def _state(last: int) -> str:
    from pagoda.scheduler.decisions import Reason

    if last in (Reason.FINISHED, Reason.CANCELLED, Reason.REFUSED):
        return Reason(last).name.lower()
    if last in (Reason.PAUSED, Reason.MADE_WAY):
        return "paused"
    running = (Reason.ADMITTED, Reason.RESUMED, Reason.CHUNKED, Reason.FORKED, Reason.SAT_OUT, Reason.CONTINUED)
    return "running" if last in running else "waiting"
