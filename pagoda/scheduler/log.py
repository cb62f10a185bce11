"""The decision log: bounded, in memory, and always openable from its own first entry.

It is kept in segments. Each opens with the scheduler's whole state; when the newest is full another begins and the
oldest is dropped. Written to a file, the log is everything a replay needs, and it holds no token id.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pagoda.core.errors import PagodaError
from pagoda.core.unreadable import UNREADABLE
from pagoda.scheduler.decisions import Decision
from pagoda.scheduler.events import Cancel, Event, Pause, PlanMade, PushBack, Resume, StepOutcome, Stop, Submit
from pagoda.scheduler.state import SchedulerState, take_state

if TYPE_CHECKING:
    from pagoda.scheduler.board import Board

FORMAT = "pagoda decision log 1"


class DecisionEntry(msgspec.Struct, frozen=True, tag="decision"):
    """A decision as it stands in a file, among the events."""

    decision: Decision


FileEntry = Submit | Cancel | Stop | PushBack | Pause | Resume | StepOutcome | PlanMade | DecisionEntry


class LogFile(msgspec.Struct, frozen=True):
    format: str
    state: SchedulerState
    entries: tuple[FileEntry, ...]


class _Segment:
    def __init__(self, state: SchedulerState) -> None:
        self.state = state
        self.entries: list[Event | Decision] = []
        # A state costs by its size, so a segment is never shorter than what the next state will cost.
        self.least = 4 * (len(state.sequences) + len(state.fresh) + len(state.cache.nodes))


class DecisionLog:
    """At most two segments of `segment_entries` (more only while the scheduler's own state is larger than that)."""

    def __init__(self, segment_entries: int = 50_000) -> None:
        self._segment_entries = segment_entries
        self._segments: list[_Segment] = []
        self._board: Board | None = None

    def attach(self, board: Board) -> None:
        self._board = board
        self._segments = [_Segment(take_state(board))]

    def record(self, event: Event) -> None:
        self._segments[-1].entries.append(event)

    def note(self, decision: Decision) -> None:
        self._segments[-1].entries.append(decision)

    def make_room(self) -> None:
        """Called between events, when the state is whole."""
        newest = self._segments[-1]
        if len(newest.entries) >= max(self._segment_entries, newest.least) and self._board is not None:
            self._segments = [newest, _Segment(take_state(self._board))]

    def __len__(self) -> int:
        return sum(len(segment.entries) for segment in self._segments)

    def __iter__(self) -> Iterator[Event | Decision]:
        for segment in self._segments:
            yield from segment.entries

    def decisions(self, request_id: str | None = None) -> list[Decision]:
        return [e for e in self if isinstance(e, Decision) and request_id in (None, e.request_id)]

    def newest(self, most: int, first_step: int = 0) -> list[Decision]:
        """At most so many decisions, the oldest first, none of steps before `first_step`. Costs by what it looks at."""
        found: list[Decision] = []
        for segment in reversed(self._segments):
            for entry in reversed(segment.entries):
                if isinstance(entry, PlanMade) and entry.step_id < first_step:
                    return found[::-1]
                if isinstance(entry, Decision) and entry.step_id >= first_step:
                    found.append(entry)
                    if len(found) == most:
                        return found[::-1]
        return found[::-1]

    def as_file(self) -> LogFile:
        entries = tuple(DecisionEntry(e) if isinstance(e, Decision) else e for e in self)
        return LogFile(FORMAT, self._segments[0].state, entries)

    def save(self, path: Path) -> None:
        data = msgspec.msgpack.encode(self.as_file())
        partial = path.with_name(path.name + ".partial")
        partial.write_bytes(data)
        partial.replace(path)


def load_log(path: Path) -> LogFile:
    try:
        log = msgspec.msgpack.decode(path.read_bytes(), type=LogFile)
    except OSError as error:
        raise PagodaError(f"cannot read the log {path}: {error.strerror}") from None
    except (*UNREADABLE, PagodaError) as error:
        raise PagodaError(f"{path} is not a whole decision log: {error}") from None
    if log.format != FORMAT:
        raise PagodaError(f"{path} has the log format {log.format!r}; this version reads {FORMAT!r}")
    return log
