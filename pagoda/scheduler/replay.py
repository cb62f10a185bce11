"""Run a decision log again and see whether every plan and every decision comes out as it did."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from pagoda.core.errors import PagodaError
from pagoda.core.plan import StepPlan
from pagoda.scheduler.decisions import Decision
from pagoda.scheduler.draft import plan_digest
from pagoda.scheduler.events import Cancel, Pause, PlanMade, PushBack, Resume, StepOutcome, Stop, Submit
from pagoda.scheduler.log import DecisionEntry, DecisionLog, LogFile
from pagoda.scheduler.scheduler import Scheduler
from pagoda.scheduler.state import check_sizes, empty_cache, put_state


@dataclass(frozen=True)
class ReplayReport:
    num_plans: int
    num_decisions: int
    first_difference: str
    """Empty when everything was reproduced."""


# A file may say anything. These are what the scheduler's own checks raise when events make no sense to it.
CONTRADICTIONS = (AssertionError, ArithmeticError, AttributeError, LookupError, PagodaError, TypeError, ValueError)


def scheduler_from(log: LogFile) -> Scheduler:
    """A scheduler in the state that the log opens with."""
    try:
        check_sizes(log.state)
        scheduler = Scheduler(
            log.state.config, empty_cache(log.state), DecisionLog(segment_entries=len(log.entries) + 1)
        )
        put_state(scheduler.board, log.state)
        scheduler.check_integrity()
    except CONTRADICTIONS as error:
        raise PagodaError(f"the state that the log opens with contradicts itself: {error}") from None
    return scheduler


def replayed_plans(log: LogFile, scheduler: Scheduler) -> Iterator[tuple[PlanMade, StepPlan]]:
    """Feed the log's events to the scheduler; each plan as it was noted and as it is made now."""
    for entry in log.entries:
        match entry:
            case Submit():
                with suppress(PagodaError):  # refused then, refused now: the decision says so
                    scheduler.submit(entry)
            case Cancel():
                scheduler.cancel(entry)
            case Stop():
                scheduler.stop(entry)
            case PushBack():
                scheduler.push_back(entry)
            case Pause():
                scheduler.pause(entry)
            case Resume():
                scheduler.resume(entry)
            case StepOutcome():
                scheduler.commit(entry)
            case PlanMade():
                yield entry, scheduler.plan(entry.now)
            case DecisionEntry():
                pass  # an output, compared at the end


def replay(log: LogFile) -> ReplayReport:
    scheduler = scheduler_from(log)
    scheduler.log.attach(scheduler.board)  # from the state it is in now
    num_plans = 0
    try:
        for noted, plan in replayed_plans(log, scheduler):
            num_plans += 1
            if plan_digest(plan) != noted.digest:
                return ReplayReport(num_plans, 0, f"the plan of step {noted.step_id} came out differently")
    except CONTRADICTIONS as error:
        return ReplayReport(num_plans, 0, f"after step {scheduler.board.step_id} the log makes no sense: {error}")
    then = [entry.decision for entry in log.entries if isinstance(entry, DecisionEntry)]
    now = scheduler.log.decisions()
    return ReplayReport(num_plans, len(now), _first_difference(then, now))


def _first_difference(then: list[Decision], now: list[Decision]) -> str:
    for before, after in zip(then, now, strict=False):
        if before != after:
            return f"step {before.step_id}: noted {before}, replayed {after}"
    return "" if len(then) == len(now) else f"{len(then)} decisions were noted, {len(now)} replayed"
