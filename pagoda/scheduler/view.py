"""What can be seen of a scheduler between two steps: who runs, who waits and who is next, as plain records."""

from __future__ import annotations

import heapq
from typing import Literal

import msgspec

from pagoda.scheduler.board import Board
from pagoda.scheduler.sequence import Sequence, State, by_rank

Phase = Literal["waiting", "blocked", "pushed back", "paused", "prompt", "answer"]
"""In the queue; waits for a prefix that another computes; lost its row and will run again; gets no tokens because
nobody takes them; runs, and reads its prompt; runs, and draws."""

MOST_WAITING = 200


class SequenceView(msgspec.Struct, frozen=True, array_like=True):
    """One answer in the making."""

    number: int
    request_id: str
    sample_index: int
    phase: Phase
    priority: int
    num_prompt_tokens: int
    num_known: int
    """The prompt and what has been drawn."""
    num_computed: int
    max_total_tokens: int
    num_pages: int
    """Held in all cache groups together."""
    num_preemptions: int


def view_running(board: Board) -> list[SequenceView]:
    """In the order of their ranks; `running_tables` has the same order."""
    return [_view(sequence, board) for sequence in board.running]


def running_tables(board: Board, group: int) -> list[list[int]]:
    """The pages that each running sequence holds in one cache group."""
    tables = [sequence.table for sequence in board.running]
    return [table.pages[group][table.first_held[group] :] if table else [] for table in tables]


def view_waiting(board: Board, most: int = MOST_WAITING) -> list[SequenceView]:
    """Those that are next, the first of them first."""
    waiting = (sequence for sequence in board.sequences.values() if sequence.state is not State.RUNNING)
    return [_view(sequence, board) for sequence in heapq.nsmallest(most, waiting, key=by_rank)]


def _view(sequence: Sequence, board: Board) -> SequenceView:
    known, computed, num_pages = sequence.num_known, 0, 0
    if sequence.table is not None:
        table, row = sequence.table, sequence.row
        known, computed = int(board.rows.known[row]), int(board.rows.computed[row])
        num_pages = sum(len(pages) - first for pages, first in zip(table.pages, table.first_held, strict=True))
    return SequenceView(
        number=sequence.number,
        request_id=sequence.request_id,
        sample_index=sequence.sample_index,
        phase=_phase(sequence, board),
        priority=sequence.submit.priority,
        num_prompt_tokens=sequence.submit.num_prompt_tokens,
        num_known=known,
        num_computed=computed,
        max_total_tokens=sequence.submit.max_total_tokens,
        num_pages=num_pages,
        num_preemptions=sequence.num_preemptions,
    )


def _phase(sequence: Sequence, board: Board) -> Phase:
    if sequence.is_paused:
        return "paused"
    if sequence.state is State.RUNNING:
        return "answer" if board.rows.decoding[sequence.row] else "prompt"
    if sequence.started_once:
        return "pushed back"
    return "blocked" if sequence.state is State.BLOCKED else "waiting"
