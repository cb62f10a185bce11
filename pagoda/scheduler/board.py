"""Who is where: every sequence from its arrival to its end, its row, its pages and its place in the queue.

The board knows how a sequence moves and what must stay true while it does; which one moves is the planner's to decide.
"""

from __future__ import annotations

from bisect import insort
from collections import deque

from pagoda.core.config import SchedulerConfig
from pagoda.core.plan import RowStart, TableUpdate
from pagoda.core.request import FinishReason
from pagoda.kv_cache import KVCacheManager, PageTable
from pagoda.scheduler.decisions import Decision, Reason
from pagoda.scheduler.draft import StepInFlight
from pagoda.scheduler.events import Submit
from pagoda.scheduler.log import DecisionLog
from pagoda.scheduler.prefix_waits import PrefixWaits
from pagoda.scheduler.queue import make_queue
from pagoda.scheduler.rows import RowTable
from pagoda.scheduler.sequence import FreshState, Sequence, State, by_rank


class Board:
    """The state of a scheduler, and the moves that keep it whole."""

    def __init__(self, config: SchedulerConfig, cache: KVCacheManager, log: DecisionLog) -> None:
        self.config = config
        self.cache = cache
        self.log = log
        self.queue = make_queue(config)
        self.rows = RowTable(config.max_num_seqs)
        self.waits = PrefixWaits()
        self.sequences: dict[int, Sequence] = {}
        self.requests: dict[str, list[Sequence]] = {}
        self.fresh: dict[int, FreshState] = {}  # those of them that wait just as they came
        self.running: list[Sequence] = []  # in the order of their ranks
        self.prefilling: list[Sequence] = []  # those of them that have prompt tokens left, in the same order
        self.in_flight: deque[StepInFlight] = deque()
        self.step_id = 0
        self.next_number = 0
        self.next_arrival = 0
        self.num_preemptions = 0
        self.num_paused = 0  # sequences, wherever they are
        self.stopped_rows: list[int] = []  # since the last plan
        self.table_updates: list[TableUpdate] = []  # likewise

    # -- arriving ------------------------------------------------------------------------------------------------------

    def put_fresh(self, fresh: FreshState) -> Sequence:
        """Queue a request as it came, now or when a snapshot is restored."""
        event = fresh.submit
        sequence = self.new_sequence(event, fresh.number, 0, fresh.arrival, list(event.page_names))
        sequence.is_trunk = event.num_samples > 1
        sequence.last_reason = Reason.QUEUED
        self.requests[event.request_id] = [sequence]
        self.queue.push(sequence)
        self.fresh[fresh.number] = fresh
        return sequence

    def new_sequence(self, event: Submit, number: int, sample_index: int, arrival: int, names: list[bytes]) -> Sequence:
        rank = self.queue.rank(arrival, sample_index, event.priority)
        sequence = Sequence(number, event, sample_index, arrival, rank, event.num_prompt_tokens, names)
        self.sequences[number] = sequence
        return sequence

    def start(self, sequence: Sequence, table: PageTable, known: int, computed: int) -> RowStart:
        row = self.rows.move_in(sequence, known, computed)
        sequence.table = table
        sequence.state = State.RUNNING
        sequence.started_once = True
        self.rows.capacity[row] = len(table.pages[0]) * self.cache.page_size
        insort(self.running, sequence, key=by_rank)
        pages = tuple(tuple(group) for group in table.pages)
        return RowStart(row, sequence.number, sequence.request_id, sequence.sample_index, computed, pages)

    # -- pages that became full ----------------------------------------------------------------------------------------

    def chunk_planned(self, sequence: Sequence) -> None:
        """Of a prompt that has more pages once the steps under way are done."""
        self._offer(sequence, int(self.rows.computed[sequence.row]))

    def page_completed(self, sequence: Sequence) -> None:
        settled = int(self.rows.settled[sequence.row])
        self._offer(sequence, settled)
        if self.cache.has_windows:
            assert sequence.table is not None
            self.cache.drop_behind(sequence.table, settled)

    def _offer(self, sequence: Sequence, num_tokens: int) -> None:
        """Let others find the full pages among its first tokens.

        A sibling may share pages that were just exchanged for equal ones in the tree: it must follow, or it would hold
        a page there without those before it.
        """
        self._publish(sequence, num_tokens)
        if sequence.submit.num_samples == 1:
            return
        table = sequence.table
        assert table is not None
        num_tokens = table.num_published * self.cache.page_size
        for sibling in self.requests[sequence.request_id]:
            if sibling.table is not None and sibling.table.num_published < table.num_published:
                self._publish(sibling, min(num_tokens, int(self.rows.settled[sibling.row])))

    def _publish(self, sequence: Sequence, num_tokens: int) -> None:
        table = sequence.table
        assert table is not None
        first = table.num_published
        for edit in self.cache.publish(table, num_tokens):
            self.table_updates.append(TableUpdate(sequence.row, edit.group, edit.entry, (edit.page,)))
        if self.waits.has_claims:
            self.wake(self.waits.published(sequence.number, sequence.page_names[first : table.num_published]))

    # -- leaving a row -------------------------------------------------------------------------------------------------

    def may_be_pushed_back(self, sequence: Sequence) -> bool:
        return sequence.num_preemptions < self.config.max_preemptions

    def most_pages(self, event: Submit) -> list[int]:
        step = self.config.max_num_batched_tokens
        return [self.cache.most_pages(g, event.max_total_tokens, step) for g in range(len(self.cache.groups))]

    def preempt(self, victim: Sequence, other: str) -> None:
        row = victim.row
        num_held = self._num_held(victim)
        victim.num_known = int(self.rows.known[row]) + victim.is_trunk
        victim.num_in_flight = int(self.rows.in_flight[row])
        self.num_preemptions += 1
        if victim.is_paused:  # it loses no time by it, so it does not count towards what it may be asked to bear
            self.note(victim, Reason.MADE_WAY, num_held, other=other)
        else:
            victim.num_preemptions += 1
            self.note(victim, Reason.PREEMPTED, num_held, victim.num_preemptions, other=other)
        self._move_out(victim)
        if victim.num_in_flight:
            victim.state = State.DRAINING
            self.note_change(victim, Reason.WAITS_FOR_RESULTS, victim.num_in_flight)
        else:
            self.requeue(victim)

    def requeue(self, sequence: Sequence) -> None:
        if sequence.is_paused:
            sequence.state = State.ASIDE
            return
        sequence.state = State.WAITING
        self.queue.push(sequence)

    def wake(self, numbers: list[int]) -> None:
        for number in numbers:
            self.requeue(self.sequences[number])

    def end(self, sequence: Sequence, reason: FinishReason) -> None:
        if sequence.state is State.RUNNING:
            self.stopped_rows.append(sequence.row)
            self._move_out(sequence)
        elif sequence.state is State.WAITING:
            self.queue.discard(sequence)
        elif sequence.state is State.BLOCKED:
            self.waits.discard(sequence.number)
        self.num_paused -= sequence.is_paused
        del self.sequences[sequence.number]
        siblings = self.requests[sequence.request_id]
        siblings.remove(sequence)
        if not siblings:
            del self.requests[sequence.request_id]
        code = Reason.CANCELLED if reason == "abort" else Reason.FINISHED
        self.note(sequence, code, sequence.num_preemptions)

    def _move_out(self, sequence: Sequence) -> None:
        """Give back the row and the pages; what was published stays in the prefix cache."""
        assert sequence.table is not None
        row = self.rows.move_out(sequence)
        self.table_updates = [update for update in self.table_updates if update.row != row]
        self.cache.close_table(sequence.table)
        sequence.table = None
        self.running.remove(sequence)
        if sequence in self.prefilling:
            self.prefilling.remove(sequence)
        self.wake(self.waits.release(sequence.number))

    # -- pausing -------------------------------------------------------------------------------------------------------

    def pause(self, sequence: Sequence) -> None:
        if sequence.is_paused:
            return
        sequence.is_paused = True
        self.num_paused += 1
        self.note(sequence, Reason.PAUSED, self._num_held(sequence))
        if sequence.state is State.RUNNING:
            self.rows.pause(sequence.row, True)
            self.wake(self.waits.release(sequence.number))  # nobody shall wait for what it was computing
        elif sequence.state is State.WAITING:
            self.queue.discard(sequence)
            sequence.state = State.ASIDE

    def resume(self, sequence: Sequence) -> None:
        if not sequence.is_paused:
            return
        sequence.is_paused = False
        self.num_paused -= 1
        self.note(sequence, Reason.CONTINUED, self._num_held(sequence))
        if sequence.state is State.RUNNING:
            self.rows.pause(sequence.row, False)
        elif sequence.state is State.ASIDE:
            self.requeue(sequence)

    def last_paused(self) -> Sequence | None:
        """Of those that hold a row and are paused, the last in rank: whoever needs its row or pages may have them."""
        if not self.num_paused:
            return None
        return next((sequence for sequence in reversed(self.running) if sequence.is_paused), None)

    @staticmethod
    def _num_held(sequence: Sequence) -> int:
        return sum(len(pages) for pages in sequence.table.pages) if sequence.table else 0

    # -- reasons and checks --------------------------------------------------------------------------------------------

    def note(self, sequence: Sequence, reason: Reason, *values: int, other: str = "") -> None:
        sequence.last_reason = reason
        self.fresh.pop(sequence.number, None)  # whatever happens to a sequence is noted
        decision = Decision(self.step_id, sequence.request_id, sequence.sample_index, reason, values, other)
        self.log.note(decision)

    def note_change(self, sequence: Sequence, reason: Reason, *values: int, other: str = "") -> None:
        """Like `_note`, but silent while the reason stays the same."""
        if sequence.last_reason is not reason:
            self.note(sequence, reason, *values, other=other)

    def check_integrity(self) -> None:
        """Every invariant that ties the counts, the rows, the queue and the pages together."""
        self.cache.check_integrity()
        rows = self.rows
        assert len(self.running) == rows.num_running
        assert [s.rank for s in self.running] == sorted(s.rank for s in self.running)
        states = {State.RUNNING: self.running}
        for sequence in self.sequences.values():
            assert (sequence.state is State.RUNNING) == (sequence in states[State.RUNNING])
            assert (sequence.state is State.RUNNING) == (sequence.table is not None)
            assert (sequence.state is State.WAITING) == (sequence in self.queue)
            assert not (sequence.state is State.WAITING and sequence.is_paused)
            assert sequence.is_paused or sequence.state is not State.ASIDE
        assert self.num_paused == sum(s.is_paused for s in self.sequences.values())
        assert len(self.waits) == sum(s.state is State.BLOCKED for s in self.sequences.values())
        for sequence in self.running:
            row, table = sequence.row, sequence.table
            assert table is not None and rows.owner[row] == sequence.number
            assert rows.paused[row] == sequence.is_paused
            assert rows.settled[row] <= rows.computed[row] <= rows.known[row] <= rows.limit[row]
            assert rows.computed[row] <= rows.capacity[row] == len(table.pages[0]) * self.cache.page_size
            assert (sequence in self.prefilling) != bool(rows.decoding[row])
            assert rows.in_flight[row] == sum(sequence.number in step.sequences for step in self.in_flight)
        for number, fresh in self.fresh.items():
            sequence = self.sequences[number]
            assert sequence.state is State.WAITING and sequence.last_reason is Reason.QUEUED, "not fresh any more"
            assert (sequence.submit, sequence.arrival, sequence.sample_index) == (fresh.submit, fresh.arrival, 0)
            assert not sequence.started_once and sequence.num_known == fresh.submit.num_prompt_tokens
        numbers = {s.number for group in self.requests.values() for s in group}
        assert numbers == set(self.sequences), "a request lost a sequence"
