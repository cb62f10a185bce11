"""One answer in the making: a request has one sequence for each sample it wants."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import msgspec

from pagoda.kv_cache import PageTable
from pagoda.scheduler.decisions import Reason
from pagoda.scheduler.events import Submit

Rank = tuple[int, int, int]
NO_ROW = -1


class State(IntEnum):
    WAITING = 0  # in the queue
    BLOCKED = 1  # waits for pages that another sequence is computing
    RUNNING = 2  # has a row
    DRAINING = 3  # was pushed back while steps of it were on the device; queues when they are back
    ASIDE = 4  # is paused and has no row; queues when it is resumed


@dataclass(eq=False, slots=True)
class Sequence:
    """While it runs, its token counts stand in the row table; `num_known` is right only while it does not."""

    number: int
    submit: Submit
    sample_index: int
    arrival: int
    rank: Rank
    num_known: int
    page_names: list[bytes]
    state: State = State.WAITING
    row: int = NO_ROW
    table: PageTable | None = None
    is_trunk: bool = False  # computes the prompt for all samples of its request, then is forked
    num_preemptions: int = 0
    num_in_flight: int = 0  # steps on the device when it lost its row
    last_reason: Reason | None = None
    started_once: bool = False
    is_paused: bool = False  # gets no tokens; while it runs it keeps its row, but whoever needs it may have it

    @property
    def request_id(self) -> str:
        return self.submit.request_id


class FreshState(msgspec.Struct, frozen=True):
    """A request that waits just as it came. It never changes, so a snapshot of a long queue copies references."""

    number: int
    arrival: int
    submit: Submit


def by_rank(sequence: Sequence) -> Rank:
    return sequence.rank
