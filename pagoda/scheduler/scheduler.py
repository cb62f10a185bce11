"""Who runs how many tokens next.

There are no phases. Every sequence has tokens that are *known* and tokens that are *computed*; each step gives some of
them tokens until computed catches up with known, and whoever catches up draws one more. Prompt chunks, decoding, prefix
hits, drafts and re-computation after preemption are all this one rule.

The scheduler is a state machine over the events of `events.py`: it reads no clock, no random number and no token id.
"""

from __future__ import annotations

from bisect import insort
from collections import deque

import numpy as np

from pagoda.core.config import SchedulerConfig
from pagoda.core.errors import CapacityError, InvalidRequest
from pagoda.core.plan import BoolArray, IntArray, LongArray, RowStart, StepPlan, TableUpdate
from pagoda.core.request import FinishReason
from pagoda.core.sampling_params import MAX_SEQUENCES
from pagoda.kv_cache import KVCacheManager, PageTable, PrefixMatch
from pagoda.scheduler.decisions import Decision, Reason
from pagoda.scheduler.draft import Decoders, PlanDraft, StepInFlight, as_ints, constant, plan_digest
from pagoda.scheduler.events import Cancel, PlanMade, PushBack, StepOutcome, Stop, Submit
from pagoda.scheduler.log import DecisionLog
from pagoda.scheduler.prefix_waits import PrefixWaits
from pagoda.scheduler.queue import make_queue
from pagoda.scheduler.rows import RowTable
from pagoda.scheduler.sequence import FreshState, Sequence, State, by_rank


class Scheduler:
    """`plan` decides a step, `commit` takes its result; between them come submit, cancel, stop and push_back."""

    def __init__(self, config: SchedulerConfig, cache: KVCacheManager, log: DecisionLog | None = None) -> None:
        self.config = config
        self.cache = cache
        self.log = log if log is not None else DecisionLog()
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
        self.stopped_rows: list[int] = []  # since the last plan
        self.table_updates: list[TableUpdate] = []  # likewise
        self._ones: IntArray = constant(np.ones(config.max_num_seqs, np.int32))
        self._zeros: IntArray = constant(np.zeros(config.max_num_seqs, np.int32))
        self._trues: BoolArray = constant(np.ones(config.max_num_seqs, np.bool_))
        self.log.attach(self)

    # -- events --------------------------------------------------------------------------------------------------------

    def submit(self, event: Submit) -> None:
        """Queue a request, or refuse one that could never run here."""
        self.log.record(event)
        self._refuse_impossible(event)
        fresh = FreshState(self.next_number, self.next_arrival, event)
        self.next_number += 1
        self.next_arrival += 1
        sequence = self.put_fresh(fresh)
        self._note(sequence, Reason.QUEUED, event.num_prompt_tokens, len(self.queue) - 1)
        self.fresh[fresh.number] = fresh

    def put_fresh(self, fresh: FreshState) -> Sequence:
        """Queue a request as it came, now or when a snapshot is restored."""
        event = fresh.submit
        sequence = self._new_sequence(event, fresh.number, 0, fresh.arrival, list(event.page_names))
        sequence.is_trunk = event.num_samples > 1
        sequence.last_reason = Reason.QUEUED
        self.requests[event.request_id] = [sequence]
        self.queue.push(sequence)
        self.fresh[fresh.number] = fresh
        return sequence

    def cancel(self, event: Cancel) -> list[int]:
        """End all sequences of a request; their numbers. A request that is not here any more is no error."""
        self.log.record(event)
        ended = list(self.requests.get(event.request_id, ()))
        for sequence in ended:
            self._end(sequence, "abort")
        return [sequence.number for sequence in ended]

    def stop(self, event: Stop) -> None:
        self.log.record(event)
        sequence = self.sequences.get(event.sequence)
        if sequence is not None:
            self._end(sequence, event.reason)

    def push_back(self, event: PushBack) -> None:
        """Preempt a running sequence on demand."""
        self.log.record(event)
        sequence = self.sequences.get(event.sequence)
        if sequence is not None and sequence.state is State.RUNNING:
            self.stopped_rows.append(sequence.row)
            self._preempt(sequence, "")

    def plan(self, now: float) -> StepPlan:
        """Decide the next step. `now` only dates the log; it decides nothing."""
        self.log.make_room()
        self.cache.clock += 1
        self.step_id += 1
        draft = PlanDraft(self.step_id, self.stopped_rows, self.table_updates)
        self.stopped_rows, self.table_updates = [], []
        self._fork_trunks(draft)
        budget = self.config.max_num_batched_tokens - self._grow_decoders(draft)
        budget = self._continue_prefills(draft, budget)
        self._admit(draft, budget)
        plan = self._assemble(draft)
        self.log.record(PlanMade(self.step_id, now, plan_digest(plan)))
        return plan

    def commit(self, outcome: StepOutcome) -> None:
        """Take the result of the oldest step in flight."""
        self.log.record(outcome)
        step = self.in_flight.popleft()
        assert step.step_id == outcome.step_id, "results must come in the order of the plans"
        for update in outcome.page_names:
            named = self.sequences.get(update.sequence)
            if named is not None:
                named.page_names.extend(update.names)
        self._settle(step, outcome)
        for finished in outcome.finished:
            sequence = self.sequences.get(finished.sequence)
            if sequence is not None:
                self._end(sequence, finished.reason)

    @property
    def has_work(self) -> bool:
        return bool(self.sequences)

    @property
    def num_waiting(self) -> int:
        return len(self.queue) + len(self.waits)

    # -- planning: the rows that run -----------------------------------------------------------------------------------

    def _fork_trunks(self, draft: PlanDraft) -> None:
        for trunk in [s for s in self.prefilling if s.is_trunk]:
            if self.rows.computed[trunk.row] == self.rows.known[trunk.row]:
                self._fork(trunk, draft)

    def _fork(self, trunk: Sequence, draft: PlanDraft) -> None:
        """All of the prompt but its last token is computed: from here on every sample goes its own way."""
        event = trunk.submit
        num_shared = event.num_prompt_tokens - 1
        trunk.is_trunk = False
        self.prefilling.remove(trunk)
        self.rows.known[trunk.row] = event.num_prompt_tokens
        self.rows.decoding[trunk.row] = True
        assert trunk.table is not None
        for sample_index in range(1, event.num_samples):
            names = trunk.page_names[: len(event.page_names)]
            child = self._new_sequence(event, self.next_number, sample_index, trunk.arrival, names)
            self.next_number += 1
            self.requests[event.request_id].append(child)
            forked = self.cache.fork(trunk.table, num_shared, names) if self.rows.free else None
            if forked is None:
                self.queue.push(child)  # it will find the prompt in the prefix cache
                self._note(child, Reason.QUEUED, event.num_prompt_tokens, len(self.queue) - 1)
                continue
            table, copies = forked
            draft.page_copies += copies
            self._start(child, table, event.num_prompt_tokens, num_shared, draft)
            self.rows.decoding[child.row] = True
            self._note(child, Reason.FORKED, num_shared, len(copies))

    def _grow_decoders(self, draft: PlanDraft) -> int:
        """Find pages for the next token of every decoding row; how many tokens that makes in all."""
        rows = self.rows
        decoders = self._decoders(draft)
        (short,) = (decoders.is_ready & (rows.computed + decoders.step > rows.capacity)).nonzero()
        for sequence in sorted([rows.tenant(row) for row in short.tolist()], key=by_rank):
            if sequence.state is State.RUNNING:
                self._make_room(sequence, int(decoders.step[sequence.row]), draft)
        return int(decoders.step.sum() if self.config.num_draft_tokens else np.count_nonzero(decoders.step))

    def _decoders(self, draft: PlanDraft) -> Decoders:
        """The rows that decode in this plan, worked out again only when one was pushed back or found no page."""
        if draft.decoders is None:
            rows = self.rows
            is_ready = rows.decoding & (rows.known < rows.limit)
            if draft.held_back:
                is_ready[list(draft.held_back)] = False
            step: BoolArray | LongArray = is_ready
            if self.config.num_draft_tokens:
                step = is_ready * np.minimum(rows.limit - rows.known, 1 + self.config.num_draft_tokens)
            draft.decoders = Decoders(is_ready, step)
        return draft.decoders

    def _make_room(self, sequence: Sequence, num_tokens: int, draft: PlanDraft) -> bool:
        """Pages for `num_tokens` more, taken from younger sequences if need be; else the row sits this step out."""
        while not self._grow(sequence, num_tokens, draft):
            victim = self._youngest_after(sequence)
            if victim is None:
                draft.hold_back(sequence.row)
                self._note_change(sequence, Reason.PAUSED, *self._page_numbers(1))
                return False
            self._push_out(victim, sequence.request_id, draft)
        return True

    def _grow(self, sequence: Sequence, num_tokens: int, draft: PlanDraft) -> bool:
        table, row = sequence.table, sequence.row
        assert table is not None
        start = len(table.pages[0])
        added = self.cache.grow(table, int(self.rows.computed[row]) + num_tokens)
        if added is None:
            return False
        draft.add_pages(row, start, added)
        self.rows.capacity[row] = len(table.pages[0]) * self.cache.page_size
        return True

    def _youngest_after(self, sequence: Sequence) -> Sequence | None:
        """Whom to push back for `sequence`: the last in rank that has not been pushed back too often."""
        for candidate in reversed(self.running):
            if candidate.rank <= sequence.rank:
                return None
            if self._may_be_pushed_back(candidate):
                return candidate
        return None

    def _may_be_pushed_back(self, sequence: Sequence) -> bool:
        return sequence.num_preemptions < self.config.max_preemptions

    def _continue_prefills(self, draft: PlanDraft, budget: int) -> int:
        for sequence in list(self.prefilling):
            if sequence.state is not State.RUNNING:
                continue  # pushed back by an older one a moment ago
            if budget <= 0:
                self._note_change(sequence, Reason.WAITS_FOR_BUDGET, self.config.max_num_batched_tokens)
                break
            budget -= self._give_chunk(sequence, budget, draft)
        return budget

    def _give_chunk(self, sequence: Sequence, budget: int, draft: PlanDraft) -> int:
        """Let a row compute as much of its prompt as budget and pages allow; how many tokens that is."""
        row = sequence.row
        table = sequence.table
        assert table is not None
        computed = int(self.rows.computed[row])
        wanted = int(self.rows.known[row]) - computed
        if not wanted:
            return 0  # a trunk whose prompt was in the cache, or is on the device: forked in the next plan
        room = int(self.rows.capacity[row]) - computed + self.cache.room(table)
        tokens = max(1, min(wanted, budget, room))
        if not self._make_room(sequence, tokens, draft):
            return 0
        draft.grants[row] = (tokens, tokens == wanted and not sequence.is_trunk)
        if tokens < wanted:
            self._note_change(sequence, Reason.CHUNKED, tokens, computed, wanted, budget)
        return tokens

    # -- planning: the rows that wait ----------------------------------------------------------------------------------

    def _admit(self, draft: PlanDraft, budget: int) -> None:
        """Let waiting sequences in, in order, until rows, pages or the budget run out."""
        while (sequence := self.queue.peek()) is not None:
            if budget <= 0:
                self._note_change(sequence, Reason.WAITS_FOR_BUDGET, self.config.max_num_batched_tokens)
                return
            if not self.rows.free:
                if self._displace(sequence, draft):
                    continue  # look again: somebody who waited for the displaced one may be first now
                self._note_change(sequence, Reason.WAITS_FOR_ROW, self.config.max_num_seqs)
                return
            match = self._match(sequence)
            if self._waits_for_prefix(sequence, match):
                if len(self.waits) > self.config.max_num_seqs:
                    return  # enough of them are set aside to fill every row
                continue
            table = self._open_table(sequence, match)
            if table is None:
                if self._displace(sequence, draft):
                    continue
                return
            self.queue.pop()
            budget -= self._begin(sequence, table, budget, draft)

    def _match(self, sequence: Sequence) -> PrefixMatch:
        """What is cached of the sequence. The last known token is always computed: what comes next hangs on it."""
        usable = (sequence.num_known - 1) // self.cache.page_size if self._reads_cache(sequence) else 0
        return self.cache.match(sequence.page_names, usable)

    def _waits_for_prefix(self, sequence: Sequence, match: PrefixMatch) -> bool:
        """Set the sequence aside if somebody is computing pages that it would have to compute next."""
        if not self._reads_cache(sequence):
            return False
        usable = min((sequence.num_known - 1) // self.cache.page_size, len(sequence.page_names))
        claim = self.waits.find(sequence.page_names, match.num_pages, usable)
        if claim is None:
            return False
        self.queue.pop()
        sequence.state = State.BLOCKED
        self.waits.wait(sequence.number, claim)
        owner = self.sequences[claim.owner]
        num_tokens = (claim.page + 1) * self.cache.page_size
        self._note(sequence, Reason.WAITS_FOR_PREFIX, num_tokens, other=owner.request_id)
        return True

    def _reads_cache(self, sequence: Sequence) -> bool:
        return self.cache.enable_prefix_caching and sequence.submit.reads_prefix_cache

    def _open_table(self, sequence: Sequence, match: PrefixMatch) -> PageTable | None:
        """A page table on what is cached of the sequence, if the rest of what is known would fit beside it."""
        headroom = self.rows.num_running  # a page for each row that is decoding, so that letting one in pushes none out
        num_cached = match.num_pages * self.cache.page_size
        num_step = min(sequence.num_known - num_cached, self.config.max_num_batched_tokens)
        for group, pool in enumerate(self.cache.pools):
            is_window = self.cache.groups[group].window > 0
            num_new = self.cache.num_pages_for(num_cached + num_step if is_window else sequence.num_known)
            needed = num_new - match.num_pages + match.num_idle[group] + headroom
            if needed > pool.num_available:
                self._note_change(sequence, Reason.WAITS_FOR_PAGES, needed, pool.num_available, pool.num_pages)
                return None
        table = self.cache.open_table(match, sequence.page_names)
        if not self._may_be_pushed_back(sequence) and not self.cache.reserve(table, self._most_pages(sequence.submit)):
            self.cache.close_table(table)
            most = max(self._most_pages(sequence.submit))
            self._note_change(sequence, Reason.WAITS_FOR_PAGES, most, *self._page_numbers(0)[1:])
            return None
        return table

    def _displace(self, sequence: Sequence, draft: PlanDraft) -> bool:
        """Push back a running sequence that must make way for this waiting one, if the policy knows such."""
        for candidate in reversed(self.running):
            if not self.queue.may_displace(sequence, candidate):
                return False
            if self._may_be_pushed_back(candidate):
                self._push_out(candidate, sequence.request_id, draft)
                return True
        return False

    def _begin(self, sequence: Sequence, table: PageTable, budget: int, draft: PlanDraft) -> int:
        """Give a row to a sequence and its first tokens to compute; how many those are."""
        num_cached = len(table.pages[0]) * self.cache.page_size
        known = sequence.num_known - 1 if sequence.is_trunk else sequence.num_known
        reason = Reason.RESUMED if sequence.started_once else Reason.ADMITTED
        self._start(sequence, table, known, num_cached, draft)
        self._note(sequence, reason, num_cached, known - num_cached)
        insort(self.prefilling, sequence, key=by_rank)
        if self._reads_cache(sequence):
            self.waits.claim(sequence.number, sequence.page_names[table.num_published :])
        return self._give_chunk(sequence, budget, draft)

    def _start(self, sequence: Sequence, table: PageTable, known: int, computed: int, draft: PlanDraft) -> None:
        row = self.rows.move_in(sequence, known, computed)
        sequence.table = table
        sequence.state = State.RUNNING
        sequence.started_once = True
        self.rows.capacity[row] = len(table.pages[0]) * self.cache.page_size
        insort(self.running, sequence, key=by_rank)
        pages = tuple(tuple(group) for group in table.pages)
        start = RowStart(row, sequence.number, sequence.request_id, sequence.sample_index, computed, pages)
        draft.started.append(start)

    # -- planning: the result ------------------------------------------------------------------------------------------

    def _assemble(self, draft: PlanDraft) -> StepPlan:
        rows = self.rows
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
        step_record = StepInFlight(plan.step_id, chosen, plan.sequences, tokens, drafts, draws, rows.num_moves)
        self.in_flight.append(step_record)
        return plan

    def _tokens_of(self, chosen: IntArray, step: BoolArray | LongArray) -> tuple[IntArray, IntArray, BoolArray]:
        """Tokens, drafts and draws of decoding rows; without drafts these never change, so they are never made anew."""
        count = len(chosen)
        if not self.config.num_draft_tokens:
            return self._ones[:count], self._zeros[:count], self._trues[:count]
        tokens = step[chosen].astype(np.int32)
        return tokens, tokens - 1, self._trues[:count]

    def _apply_grants(self, prompts: IntArray, granted: IntArray, drawing: np.ndarray) -> None:
        self.rows.computed[prompts] += granted
        self.rows.in_flight[prompts] += 1
        drawers = prompts[drawing]
        self.rows.known[drawers] += 1
        self.rows.decoding[drawers] = True
        for row in drawers:
            self.prefilling.remove(self.rows.tenant(int(row)))

    # -- committing ----------------------------------------------------------------------------------------------------

    def _settle(self, step: StepInFlight, outcome: StepOutcome) -> None:
        rows = self.rows
        refused = None
        if outcome.num_new is not None:
            promised = np.where(step.draws, 1 + step.num_drafts, 0)
            refused = promised - np.asarray(outcome.num_new, np.int64)
        present, num_tokens = step.rows, step.num_tokens
        if step.num_moves != rows.num_moves:  # rows may have other tenants by now
            same_tenant = rows.owner[present] == step.sequences
            if not same_tenant.all():
                self._settle_moved_out(step, ~same_tenant, refused)
                present, num_tokens = present[same_tenant], num_tokens[same_tenant]
                refused = refused[same_tenant] if refused is not None else None
        before = rows.settled[present]
        after = before + num_tokens
        if refused is not None:
            rows.known[present] -= refused
            rows.computed[present] -= refused
            after -= refused
        rows.settled[present] = after
        rows.in_flight[present] -= 1
        size = self.cache.page_size
        for row in present[after // size > before // size].tolist():
            self._page_completed(rows.tenant(row))

    def _settle_moved_out(self, step: StepInFlight, moved: np.ndarray, refused: np.ndarray | None) -> None:
        """Results for those that lost their rows since: who was pushed back keeps its tokens, who ended does not."""
        for entry in np.flatnonzero(moved):
            sequence = self.sequences.get(int(step.sequences[entry]))
            if sequence is None or sequence.state is not State.DRAINING:
                continue
            if refused is not None:
                sequence.num_known -= int(refused[entry])
            sequence.num_in_flight -= 1
            if not sequence.num_in_flight:
                self._requeue(sequence)

    def _page_completed(self, sequence: Sequence) -> None:
        table = sequence.table
        assert table is not None
        settled = int(self.rows.settled[sequence.row])
        self._publish(sequence, settled)
        if self.cache.has_windows:
            self.cache.drop_behind(table, settled)
        if sequence.submit.num_samples == 1:
            return
        # A sibling may share pages that were just exchanged for equal ones in the tree: it must follow, or it would
        # hold a page there without those before it.
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
            self._wake(self.waits.published(sequence.number, sequence.page_names[first : table.num_published]))

    # -- leaving a row -------------------------------------------------------------------------------------------------

    def _push_out(self, victim: Sequence, other: str, draft: PlanDraft) -> None:
        draft.take_back(victim.row)
        draft.stopped.append(victim.row)
        self._preempt(victim, other)

    def _preempt(self, victim: Sequence, other: str) -> None:
        row = victim.row
        num_held = sum(len(pages) for pages in victim.table.pages) if victim.table else 0
        victim.num_known = int(self.rows.known[row]) + victim.is_trunk
        victim.num_in_flight = int(self.rows.in_flight[row])
        victim.num_preemptions += 1
        self.num_preemptions += 1
        self._note(victim, Reason.PREEMPTED, num_held, victim.num_preemptions, other=other)
        self._move_out(victim)
        if victim.num_in_flight:
            victim.state = State.DRAINING
            self._note_change(victim, Reason.WAITS_FOR_RESULTS, victim.num_in_flight)
        else:
            self._requeue(victim)

    def _requeue(self, sequence: Sequence) -> None:
        sequence.state = State.WAITING
        self.queue.push(sequence)

    def _end(self, sequence: Sequence, reason: FinishReason) -> None:
        if sequence.state is State.RUNNING:
            self.stopped_rows.append(sequence.row)
            self._move_out(sequence)
        elif sequence.state is State.WAITING:
            self.queue.discard(sequence)
        elif sequence.state is State.BLOCKED:
            self.waits.discard(sequence.number)
        del self.sequences[sequence.number]
        siblings = self.requests[sequence.request_id]
        siblings.remove(sequence)
        if not siblings:
            del self.requests[sequence.request_id]
        code = Reason.CANCELLED if reason == "abort" else Reason.FINISHED
        self._note(sequence, code, sequence.num_preemptions)

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
        self._wake(self.waits.release(sequence.number))

    def _wake(self, numbers: list[int]) -> None:
        for number in numbers:
            self._requeue(self.sequences[number])

    # -- small things --------------------------------------------------------------------------------------------------

    def _new_sequence(
        self, event: Submit, number: int, sample_index: int, arrival: int, names: list[bytes]
    ) -> Sequence:
        rank = self.queue.rank(arrival, sample_index, event.priority)
        sequence = Sequence(number, event, sample_index, arrival, rank, event.num_prompt_tokens, names)
        self.sequences[number] = sequence
        return sequence

    def _most_pages(self, event: Submit) -> list[int]:
        step = self.config.max_num_batched_tokens
        return [self.cache.most_pages(g, event.max_total_tokens, step) for g in range(len(self.cache.groups))]

    def _page_numbers(self, needed: int) -> tuple[int, int, int]:
        pool = min(self.cache.pools, key=lambda pool: pool.num_available)
        return needed, pool.num_available, pool.num_pages

    def _refuse_impossible(self, event: Submit) -> None:
        if event.request_id in self.requests:
            raise InvalidRequest("request_id", f"{event.request_id!r} is already here; ids must be unique")
        if not 1 <= event.num_samples <= MAX_SEQUENCES:
            raise InvalidRequest("num_samples", f"must lie between 1 and {MAX_SEQUENCES}, not {event.num_samples}")
        if not 1 <= event.num_prompt_tokens < event.max_total_tokens:
            most = event.max_total_tokens - 1
            raise InvalidRequest("num_prompt_tokens", f"must lie between 1 and {most}, not {event.num_prompt_tokens}")
        for group, (needed, pool) in enumerate(zip(self._most_pages(event), self.cache.pools, strict=True)):
            if needed > pool.num_pages:
                self.log.note(
                    Decision(self.step_id, event.request_id, 0, Reason.REFUSED, (needed, pool.num_pages, group))
                )
                raise CapacityError(
                    f"request {event.request_id!r} can never run: {event.num_prompt_tokens} prompt tokens growing to "
                    f"{event.max_total_tokens} need {needed} pages of {self.cache.page_size} tokens, and there are "
                    f"{pool.num_pages}; lower max_tokens or give more num_pages"
                )

    def _note(self, sequence: Sequence, reason: Reason, *values: int, other: str = "") -> None:
        sequence.last_reason = reason
        self.fresh.pop(sequence.number, None)  # whatever happens to a sequence is noted
        decision = Decision(self.step_id, sequence.request_id, sequence.sample_index, reason, values, other)
        self.log.note(decision)

    def _note_change(self, sequence: Sequence, reason: Reason, *values: int, other: str = "") -> None:
        """Like `_note`, but silent while the reason stays the same."""
        if sequence.last_reason is not reason:
            self._note(sequence, reason, *values, other=other)

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
        assert len(self.waits) == sum(s.state is State.BLOCKED for s in self.sequences.values())
        for sequence in self.running:
            row, table = sequence.row, sequence.table
            assert table is not None and rows.owner[row] == sequence.number
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
