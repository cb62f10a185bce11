"""What the next step does: who gets how many tokens, who starts, who must make way.

The order is fixed: forks, a token for every decoding row, prompt chunks, newcomers; one budget for them all.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass

import numpy as np

from pagoda.core.plan import BoolArray, IntArray, LongArray, StepPlan
from pagoda.kv_cache import PageTable, PrefixMatch
from pagoda.scheduler.board import Board
from pagoda.scheduler.decisions import Reason
from pagoda.scheduler.draft import Decoders, PlanDraft, StepInFlight, as_ints, constant
from pagoda.scheduler.sequence import Sequence, State, by_rank


@dataclass(eq=False, slots=True)
class Steady:
    """A plan that only decodes, and for how many steps its rows have room to do the same again."""

    plan: StepPlan
    step: StepInFlight
    ones: LongArray  # by row: 1 for those of the plan
    num_moves: int
    num_left: int


class Planner:
    """Reads the board, decides, and moves the sequences it decided on."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._config = board.config
        self._cache = board.cache
        self._rows = board.rows
        self._queue = board.queue
        self._waits = board.waits
        num_rows = board.config.max_num_seqs
        self._ones: IntArray = constant(np.ones(num_rows, np.int32))
        self._zeros: IntArray = constant(np.zeros(num_rows, np.int32))
        self._trues: BoolArray = constant(np.ones(num_rows, np.bool_))
        self._steady: Steady | None = None

    def plan(self) -> StepPlan:
        steady = self._steady
        if steady is not None and self._is_undisturbed(steady):
            return self._repeat(steady)
        board = self._board
        self._publish_chunks()
        draft = PlanDraft(board.step_id, board.stopped_rows, board.table_updates)
        board.stopped_rows, board.table_updates = [], []
        self._fork_trunks(draft)
        budget = self._config.max_num_batched_tokens - self._grow_decoders(draft)
        budget = self._continue_prefills(draft, budget)
        self._admit(draft, budget)
        plan = self._assemble(draft)
        self._steady = self._steady_after(plan, draft)
        return plan

    # -- a step like the last one --------------------------------------------------------------------------------------

    def _steady_after(self, plan: StepPlan, draft: PlanDraft) -> Steady | None:
        """What must hold for the plans to come to repeat this one: only rows that decode, and room in their pages."""
        if draft.grants or draft.held_back or self._config.num_draft_tokens or plan.is_empty:
            return None
        rows = self._rows
        step = self._board.in_flight[-1]
        in_pages = rows.capacity[step.rows] - rows.computed[step.rows]
        room = np.minimum(in_pages, rows.limit[step.rows] - rows.known[step.rows])
        ones = np.zeros_like(rows.known)
        ones[step.rows] = 1
        return Steady(plan, step._replace(ones=ones), ones, rows.num_moves, int(room.min()))

    def _is_undisturbed(self, steady: Steady) -> bool:
        board = self._board
        return (
            steady.num_left > 0
            and steady.num_moves == self._rows.num_moves
            and not board.prefilling
            and not board.stopped_rows
            and not board.table_updates
            and self._queue.peek() is None
        )

    def _repeat(self, steady: Steady) -> StepPlan:
        steady.num_left -= 1
        board, rows, last = self._board, self._rows, steady.plan
        rows.computed += steady.ones
        rows.known += steady.ones
        rows.in_flight += steady.ones
        board.in_flight.append(steady.step._replace(step_id=board.step_id))
        arrays = (last.rows, last.sequences, last.num_tokens, last.num_drafts, last.draws)
        return StepPlan(board.step_id, (), (), (), (), *arrays)

    # -- the rows that run ---------------------------------------------------------------------------------------------

    def _publish_chunks(self) -> None:
        """Steps are computed in the order of their plans: what the last one computes of prompts, this one can read,
        whether its results are back or not. A chunk of a single token is not told from a row that decodes, and waits.
        """
        if not self._board.in_flight:
            return
        step = self._board.in_flight[-1]
        (chunks,) = ((step.num_tokens > 1) & (step.num_drafts == 0)).nonzero()
        for row, sequence in zip(step.rows[chunks].tolist(), step.sequences[chunks].tolist(), strict=True):
            if self._rows.owner[row] == sequence:
                self._board.chunk_planned(self._rows.tenant(row))

    def _fork_trunks(self, draft: PlanDraft) -> None:
        for trunk in [s for s in self._board.prefilling if s.is_trunk and not s.is_paused]:
            if self._rows.computed[trunk.row] == self._rows.known[trunk.row]:
                self._fork(trunk, draft)

    def _fork(self, trunk: Sequence, draft: PlanDraft) -> None:
        """All of the prompt but its last token is computed: from here on every sample goes its own way."""
        event = trunk.submit
        num_shared = event.num_prompt_tokens - 1
        trunk.is_trunk = False
        self._board.prefilling.remove(trunk)
        self._rows.known[trunk.row] = event.num_prompt_tokens
        self._rows.decoding[trunk.row] = True
        assert trunk.table is not None
        for sample_index in range(1, event.num_samples):
            names = trunk.page_names[: len(event.page_names)]
            child = self._board.new_sequence(event, self._board.next_number, sample_index, trunk.arrival, names)
            self._board.next_number += 1
            self._board.requests[event.request_id].append(child)
            forked = self._cache.fork(trunk.table, num_shared, names) if self._rows.free else None
            if forked is None:
                self._queue.push(child)  # it will find the prompt in the prefix cache
                self._board.note(child, Reason.QUEUED, event.num_prompt_tokens, len(self._queue) - 1)
                continue
            table, copies = forked
            draft.page_copies += copies
            draft.started.append(self._board.start(child, table, event.num_prompt_tokens, num_shared))
            self._rows.decoding[child.row] = True
            self._board.note(child, Reason.FORKED, num_shared, len(copies))

    def _grow_decoders(self, draft: PlanDraft) -> int:
        """Find pages for the next token of every decoding row; how many tokens that makes in all."""
        rows = self._rows
        decoders = self._decoders(draft)
        (short,) = (decoders.is_ready & (rows.computed + decoders.step > rows.capacity)).nonzero()
        for sequence in sorted([rows.tenant(row) for row in short.tolist()], key=by_rank):
            if sequence.state is State.RUNNING:
                self._make_room(sequence, int(decoders.step[sequence.row]), draft)
        return int(decoders.step.sum() if self._config.num_draft_tokens else np.count_nonzero(decoders.step))

    def _decoders(self, draft: PlanDraft) -> Decoders:
        """The rows that decode in this plan, worked out again only when one was pushed back or found no page."""
        if draft.decoders is None:
            rows = self._rows
            is_ready = (rows.decoding > rows.paused) & (rows.known < rows.limit)
            if draft.held_back:
                is_ready[list(draft.held_back)] = False
            step: BoolArray | LongArray = is_ready
            if self._config.num_draft_tokens:
                step = is_ready * np.minimum(rows.limit - rows.known, 1 + self._config.num_draft_tokens)
            draft.decoders = Decoders(is_ready, step)
        return draft.decoders

    def _make_room(self, sequence: Sequence, num_tokens: int, draft: PlanDraft) -> bool:
        """Pages for `num_tokens` more, taken from younger sequences if need be; else the row sits this step out."""
        while not self._grow(sequence, num_tokens, draft):
            victim = self._board.last_paused() or self._youngest_after(sequence)
            if victim is None:
                draft.hold_back(sequence.row)
                self._board.note_change(sequence, Reason.SAT_OUT, *self._page_numbers(1))
                return False
            self._push_out(victim, sequence.request_id, draft)
        return True

    def _grow(self, sequence: Sequence, num_tokens: int, draft: PlanDraft) -> bool:
        table, row = sequence.table, sequence.row
        assert table is not None
        start = len(table.pages[0])
        added = self._cache.grow(table, int(self._rows.computed[row]) + num_tokens)
        if added is None:
            return False
        draft.add_pages(row, start, added)
        self._rows.capacity[row] = len(table.pages[0]) * self._cache.page_size
        return True

    def _youngest_after(self, sequence: Sequence) -> Sequence | None:
        """Whom to push back for `sequence`: the last in rank that has not been pushed back too often."""
        for candidate in reversed(self._board.running):
            if candidate.rank <= sequence.rank:
                return None
            if self._board.may_be_pushed_back(candidate):
                return candidate
        return None

    def _continue_prefills(self, draft: PlanDraft, budget: int) -> int:
        for sequence in list(self._board.prefilling):
            if sequence.state is not State.RUNNING or sequence.is_paused:
                continue  # pushed back by an older one a moment ago, or not to go on
            if budget <= 0:
                self._board.note_change(sequence, Reason.WAITS_FOR_BUDGET, self._config.max_num_batched_tokens)
                break
            budget -= self._give_chunk(sequence, budget, draft)
        return budget

    def _give_chunk(self, sequence: Sequence, budget: int, draft: PlanDraft) -> int:
        """Let a row compute as much of its prompt as budget and pages allow; how many tokens that is."""
        row = sequence.row
        table = sequence.table
        assert table is not None
        computed = int(self._rows.computed[row])
        wanted = int(self._rows.known[row]) - computed
        if not wanted:
            return 0  # a trunk whose prompt was in the cache, or is on the device: forked in the next plan
        room = int(self._rows.capacity[row]) - computed + self._cache.room(table)
        tokens = max(1, min(wanted, budget, room))
        if not self._make_room(sequence, tokens, draft):
            return 0
        draft.grants[row] = (tokens, tokens == wanted and not sequence.is_trunk)
        if tokens < wanted:
            self._board.note_change(sequence, Reason.CHUNKED, tokens, computed, wanted, budget)
        return tokens

    # -- the rows that wait --------------------------------------------------------------------------------------------

    def _admit(self, draft: PlanDraft, budget: int) -> None:
        """Let waiting sequences in, in order, until rows, pages or the budget run out."""
        while (sequence := self._queue.peek()) is not None:
            if budget <= 0:
                self._board.note_change(sequence, Reason.WAITS_FOR_BUDGET, self._config.max_num_batched_tokens)
                return
            if not self._rows.free:
                if self._displace(sequence, draft):
                    continue  # look again: somebody who waited for the displaced one may be first now
                self._board.note_change(sequence, Reason.WAITS_FOR_ROW, self._config.max_num_seqs)
                return
            match = self._match(sequence)
            if self._waits_for_prefix(sequence, match):
                if len(self._waits) > self._config.max_num_seqs:
                    return  # enough of them are set aside to fill every row
                continue
            table = self._open_table(sequence, match)
            if table is None:
                if self._displace(sequence, draft):
                    continue
                return
            self._queue.pop()
            budget -= self._begin(sequence, table, budget, draft)

    def _match(self, sequence: Sequence) -> PrefixMatch:
        """What is cached of the sequence. The last known token is always computed: what comes next hangs on it."""
        usable = (sequence.num_known - 1) // self._cache.page_size if self._reads_cache(sequence) else 0
        return self._cache.match(sequence.page_names, usable)

    def _waits_for_prefix(self, sequence: Sequence, match: PrefixMatch) -> bool:
        """Set the sequence aside if somebody is computing pages that it would have to compute next."""
        if not self._reads_cache(sequence):
            return False
        usable = min((sequence.num_known - 1) // self._cache.page_size, len(sequence.page_names))
        claim = self._waits.find(sequence.page_names, match.num_pages, usable)
        if claim is None:
            return False
        self._queue.pop()
        sequence.state = State.BLOCKED
        self._waits.wait(sequence.number, claim)
        owner = self._board.sequences[claim.owner]
        num_tokens = (claim.page + 1) * self._cache.page_size
        self._board.note(sequence, Reason.WAITS_FOR_PREFIX, num_tokens, other=owner.request_id)
        return True

    def _reads_cache(self, sequence: Sequence) -> bool:
        return self._cache.enable_prefix_caching and sequence.submit.reads_prefix_cache

    def _open_table(self, sequence: Sequence, match: PrefixMatch) -> PageTable | None:
        """A page table on what is cached of the sequence, if the rest of what is known would fit beside it."""
        headroom = (
            self._rows.num_running
        )  # a page for each row that is decoding, so that letting one in pushes none out
        num_cached = match.num_pages * self._cache.page_size
        num_step = min(sequence.num_known - num_cached, self._config.max_num_batched_tokens)
        for group, pool in enumerate(self._cache.pools):
            is_window = self._cache.groups[group].window > 0
            num_new = self._cache.num_pages_for(num_cached + num_step if is_window else sequence.num_known)
            needed = num_new - match.num_pages + match.num_idle[group] + headroom
            if needed > pool.num_available:
                self._board.note_change(sequence, Reason.WAITS_FOR_PAGES, needed, pool.num_available, pool.num_pages)
                return None
        table = self._cache.open_table(match, sequence.page_names)
        if self._board.may_be_pushed_back(sequence):
            return table
        most = self._board.most_pages(sequence.submit)
        if self._cache.reserve(table, most):
            return table
        self._cache.close_table(table)
        self._board.note_change(sequence, Reason.WAITS_FOR_PAGES, *self._page_numbers(max(most)))
        return None

    def _displace(self, sequence: Sequence, draft: PlanDraft) -> bool:
        """Push back a running sequence for this waiting one: a paused one, or one that the policy names, if any."""
        paused = self._board.last_paused()
        if paused is not None:
            self._push_out(paused, sequence.request_id, draft)
            return True
        for candidate in reversed(self._board.running):
            if not self._queue.may_displace(sequence, candidate):
                return False
            if self._board.may_be_pushed_back(candidate):
                self._push_out(candidate, sequence.request_id, draft)
                return True
        return False

    def _begin(self, sequence: Sequence, table: PageTable, budget: int, draft: PlanDraft) -> int:
        """Give a row to a sequence and its first tokens to compute; how many those are."""
        num_cached = len(table.pages[0]) * self._cache.page_size
        known = sequence.num_known - 1 if sequence.is_trunk else sequence.num_known
        reason = Reason.RESUMED if sequence.started_once else Reason.ADMITTED
        draft.started.append(self._board.start(sequence, table, known, num_cached))
        self._board.note(sequence, reason, num_cached, known - num_cached)
        insort(self._board.prefilling, sequence, key=by_rank)
        if self._reads_cache(sequence):
            self._waits.claim(sequence.number, sequence.page_names[table.num_published :])
        return self._give_chunk(sequence, budget, draft)

    def _push_out(self, victim: Sequence, other: str, draft: PlanDraft) -> None:
        draft.take_back(victim.row)
        draft.stopped.append(victim.row)
        self._board.preempt(victim, other)

    def _page_numbers(self, needed: int) -> tuple[int, int, int]:
        pool = min(self._cache.pools, key=lambda pool: pool.num_available)
        return needed, pool.num_available, pool.num_pages

    # -- the result ----------------------------------------------------------------------------------------------------

    def _assemble(self, draft: PlanDraft) -> StepPlan:
        rows = self._rows
        is_ready, step = self._decoders(draft)
        rows.computed += step
        rows.known += step
        rows.in_flight += is_ready
        chosen = is_ready.nonzero()[0].astype(np.int32)
        tokens, drafts, draws = self._tokens_of(chosen, step)
        if draft.grants:
            prompts = as_ints(list(draft.grants))
            granted = as_ints([tokens for tokens, _ in draft.grants.values()])
            drawing = np.array([draw for _, draw in draft.grants.values()], np.bool_)
            self._apply_grants(prompts, granted, drawing)
            chosen = np.concatenate([chosen, prompts])
            tokens = np.concatenate([tokens, granted])
            drafts = np.concatenate([drafts, np.zeros(len(prompts), np.int32)])
            draws = np.concatenate([draws, drawing])
        plan = StepPlan(
            step_id=draft.step_id,
            stopped=tuple(draft.stopped),
            page_copies=tuple(draft.page_copies),
            started=tuple(draft.started),
            table_updates=tuple(draft.table_updates),
            rows=chosen,
            sequences=rows.owner[chosen],
            num_tokens=tokens,
            num_drafts=drafts,
            draws=draws,
        )
        places = chosen.astype(np.intp)
        step_record = StepInFlight(plan.step_id, places, plan.sequences, tokens, drafts, draws, rows.num_moves)
        self._board.in_flight.append(step_record)
        return plan

    def _tokens_of(self, chosen: IntArray, step: BoolArray | LongArray) -> tuple[IntArray, IntArray, BoolArray]:
        """Tokens, drafts and draws of decoding rows; without drafts these never change, so they are never made anew."""
        count = len(chosen)
        if not self._config.num_draft_tokens:
            return self._ones[:count], self._zeros[:count], self._trues[:count]
        tokens = step[chosen].astype(np.int32)
        return tokens, tokens - 1, self._trues[:count]

    def _apply_grants(self, prompts: IntArray, granted: IntArray, drawing: np.ndarray) -> None:
        self._rows.computed[prompts] += granted
        self._rows.in_flight[prompts] += 1
        drawers = prompts[drawing]
        self._rows.known[drawers] += 1
        self._rows.decoding[drawers] = True
        for row in drawers:
            self._board.prefilling.remove(self._rows.tenant(int(row)))
