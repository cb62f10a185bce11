"""Who runs how many tokens next: a deterministic state machine over an event log."""

from __future__ import annotations

from pagoda.scheduler.events import Cancel, Finished, PageNames, Pause, PushBack, Resume, StepOutcome, Stop, Submit
from pagoda.scheduler.log import DecisionLog, load_log
from pagoda.scheduler.scheduler import Scheduler

__all__ = [
    "Cancel",
    "DecisionLog",
    "Finished",
    "PageNames",
    "Pause",
    "PushBack",
    "Resume",
    "Scheduler",
    "StepOutcome",
    "Stop",
    "Submit",
    "load_log",
]
