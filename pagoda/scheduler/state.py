"""The whole state of a scheduler as one record, so that a log can open with it and a replay can start from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from pagoda.core.cache import CacheGroup
from pagoda.core.config import SchedulerConfig
from pagoda.core.errors import PagodaError
from pagoda.core.plan import TableUpdate
from pagoda.kv_cache import CacheState, KVCacheManager, PageTable
from pagoda.scheduler.decisions import Reason
from pagoda.scheduler.draft import StepInFlight
from pagoda.scheduler.events import Submit
from pagoda.scheduler.rows import RowTable
from pagoda.scheduler.sequence import FreshState, Sequence, State

if TYPE_CHECKING:
    from pagoda.scheduler.board import Board


class TableState(msgspec.Struct, frozen=True):
    pages: tuple[tuple[int, ...], ...]
    num_published: int
    first_held: tuple[int, ...]
    reserved: tuple[int, ...]
    promised: tuple[int, ...]


class RowState(msgspec.Struct, frozen=True):
    row: int
    known: int
    computed: int
    settled: int
    in_flight: int
    decoding: bool


class SequenceState(msgspec.Struct, frozen=True):
    number: int
    request: int  # index into SchedulerState.submits
    sample_index: int
    arrival: int
    num_known: int
    generated_names: tuple[bytes, ...]  # page names beyond those of the prompt
    state: State
    is_trunk: bool
    num_preemptions: int
    num_in_flight: int
    last_reason: Reason | None
    started_once: bool
    row: RowState | None
    table: TableState | None
    is_paused: bool = False


class StepState(msgspec.Struct, frozen=True):
    step_id: int
    rows: tuple[int, ...]
    sequences: tuple[int, ...]
    num_tokens: tuple[int, ...]
    num_drafts: tuple[int, ...]
    draws: tuple[bool, ...]


class SchedulerState(msgspec.Struct, frozen=True):
    config: SchedulerConfig
    groups: tuple[CacheGroup, ...]
    num_pages: tuple[int, ...]
    page_size: int
    enable_prefix_caching: bool
    clock: int
    step_id: int
    next_number: int
    next_arrival: int
    num_preemptions: int
    free_rows: tuple[int, ...]
    stopped_rows: tuple[int, ...]
    table_updates: tuple[TableUpdate, ...]
    submits: tuple[Submit, ...]
    sequences: tuple[SequenceState, ...]  # all that are not fresh
    fresh: tuple[FreshState, ...]
    claims: tuple[tuple[int, bytes], ...]
    waits: tuple[tuple[int, int, bytes], ...]
    in_flight: tuple[StepState, ...]
    cache: CacheState


def take_state(board: Board) -> SchedulerState:
    cache, fresh = board.cache, board.fresh
    others = [sequence for number, sequence in board.sequences.items() if number not in fresh]
    submits = {sequence.request_id: sequence.submit for sequence in others}
    index = {request_id: position for position, request_id in enumerate(submits)}
    return SchedulerState(
        config=board.config,
        groups=cache.groups,
        num_pages=tuple(pool.num_pages for pool in cache.pools),
        page_size=cache.page_size,
        enable_prefix_caching=cache.enable_prefix_caching,
        clock=cache.clock,
        step_id=board.step_id,
        next_number=board.next_number,
        next_arrival=board.next_arrival,
        num_preemptions=board.num_preemptions,
        free_rows=tuple(board.rows.free),
        stopped_rows=tuple(board.stopped_rows),
        table_updates=tuple(board.table_updates),
        submits=tuple(submits.values()),
        sequences=tuple(_sequence_state(sequence, index, board.rows) for sequence in others),
        fresh=tuple(fresh.values()),
        claims=tuple(board.waits.claims()),
        waits=tuple(board.waits.waits()),
        in_flight=tuple(_step_state(step) for step in board.in_flight),
        cache=cache.state(),
    )


def put_state(board: Board, state: SchedulerState) -> None:
    """Bring a new, empty board into a saved state."""
    board.step_id = state.step_id
    board.next_number = state.next_number
    board.next_arrival = state.next_arrival
    board.num_preemptions = state.num_preemptions
    board.stopped_rows = list(state.stopped_rows)
    board.table_updates = list(state.table_updates)
    board.cache.clock = state.clock
    everyone: list[SequenceState | FreshState] = [*state.sequences, *state.fresh]
    for saved in sorted(everyone, key=lambda saved: saved.number):
        if isinstance(saved, FreshState):
            board.put_fresh(saved)
        else:
            _put_sequence(board, saved, state.submits[saved.request])
    board.rows.free = list(state.free_rows)
    board.running.sort(key=lambda sequence: sequence.rank)
    board.prefilling.sort(key=lambda sequence: sequence.rank)
    board.waits.restore(state.claims, state.waits)
    board.in_flight.extend(_put_step(step) for step in state.in_flight)
    tables = [sequence.table for sequence in board.running if sequence.table is not None]
    board.cache.restore(state.cache, tables)


def check_sizes(state: SchedulerState) -> None:
    """Refuse a state that names more pages or rows than it accounts for, before anything of that size is made."""
    cache = state.cache
    tables = [saved.table for saved in state.sequences if saved.table is not None]
    if not 1 <= len(state.groups) == len(state.num_pages) == len(cache.free) or state.page_size < 1:
        raise PagodaError("the log's cache groups, pages and page size do not fit together")
    for group, count in enumerate(state.num_pages):
        listed = len(cache.free[group]) + len(cache.nodes) + sum(len(table.pages[group]) for table in tables)
        if not 1 <= count <= listed:
            raise PagodaError(f"the log speaks of {count} pages in cache group {group} and lists {listed}")
    if state.config.max_num_seqs != len(state.free_rows) + len(tables):
        raise PagodaError(f"the log speaks of {state.config.max_num_seqs} rows and does not list them")


def empty_cache(state: SchedulerState) -> KVCacheManager:
    return KVCacheManager(state.groups, state.num_pages, state.page_size, state.enable_prefix_caching)


def _sequence_state(sequence: Sequence, index: dict[str, int], rows: RowTable) -> SequenceState:
    row, table = sequence.row, sequence.table
    return SequenceState(
        number=sequence.number,
        request=index[sequence.request_id],
        sample_index=sequence.sample_index,
        arrival=sequence.arrival,
        num_known=sequence.num_known,
        generated_names=tuple(sequence.page_names[len(sequence.submit.page_names) :]),
        state=sequence.state,
        is_trunk=sequence.is_trunk,
        num_preemptions=sequence.num_preemptions,
        num_in_flight=sequence.num_in_flight,
        last_reason=sequence.last_reason,
        started_once=sequence.started_once,
        row=None
        if table is None
        else RowState(
            row,
            int(rows.known[row]),
            int(rows.computed[row]),
            int(rows.settled[row]),
            int(rows.in_flight[row]),
            bool(rows.decoding[row]),
        ),
        table=None
        if table is None
        else TableState(
            tuple(tuple(pages) for pages in table.pages),
            table.num_published,
            tuple(table.first_held),
            tuple(table.reserved),
            tuple(table.promised),
        ),
        is_paused=sequence.is_paused,
    )


def _put_sequence(board: Board, saved: SequenceState, submit: Submit) -> None:
    sequence = Sequence(
        number=saved.number,
        submit=submit,
        sample_index=saved.sample_index,
        arrival=saved.arrival,
        rank=board.queue.rank(saved.arrival, saved.sample_index, submit.priority),
        num_known=saved.num_known,
        page_names=[*submit.page_names, *saved.generated_names],
        state=saved.state,
        is_trunk=saved.is_trunk,
        num_preemptions=saved.num_preemptions,
        num_in_flight=saved.num_in_flight,
        last_reason=saved.last_reason,
        started_once=saved.started_once,
        is_paused=saved.is_paused,
    )
    board.num_paused += saved.is_paused
    board.sequences[sequence.number] = sequence
    board.requests.setdefault(submit.request_id, []).append(sequence)
    if saved.state is State.WAITING:
        board.queue.push(sequence)
    if saved.row is not None and saved.table is not None:
        sequence.table = PageTable(
            pages=[list(pages) for pages in saved.table.pages],
            names=sequence.page_names,
            num_published=saved.table.num_published,
            first_held=list(saved.table.first_held),
            reserved=list(saved.table.reserved),
            promised=list(saved.table.promised),
        )
        _put_row(board, sequence, saved.row)


def _put_row(board: Board, sequence: Sequence, saved: RowState) -> None:
    rows = board.rows
    assert sequence.table is not None
    rows.free = [saved.row]  # so that it moves into just this row; the real list follows when all are in
    row = rows.move_in(sequence, saved.known, saved.computed)
    rows.settled[row] = saved.settled
    rows.in_flight[row] = saved.in_flight
    rows.decoding[row] = saved.decoding
    rows.capacity[row] = len(sequence.table.pages[0]) * board.cache.page_size
    board.running.append(sequence)
    if not saved.decoding:
        board.prefilling.append(sequence)


def _step_state(step: StepInFlight) -> StepState:
    return StepState(
        step.step_id,
        tuple(step.rows.tolist()),
        tuple(step.sequences.tolist()),
        tuple(step.num_tokens.tolist()),
        tuple(step.num_drafts.tolist()),
        tuple(step.draws.tolist()),
    )


def _put_step(saved: StepState) -> StepInFlight:
    return StepInFlight(
        saved.step_id,
        np.array(saved.rows, np.intp),
        np.array(saved.sequences, np.int64),
        np.array(saved.num_tokens, np.int32),
        np.array(saved.num_drafts, np.int32),
        np.array(saved.draws, np.bool_),
        num_moves=-1,  # unlike any, so that the tenants are compared one by one
    )
