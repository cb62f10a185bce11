"""Who runs how many tokens next.

There are no phases. Every sequence has tokens that are *known* and tokens that are *computed*; each step gives some of
them tokens until computed catches up with known, and whoever catches up draws one more. Prompt chunks, decoding, prefix
hits, drafts and re-computation after preemption are all this one rule.

The scheduler is a state machine over the events of `events.py`: it reads no clock, no random number and no token id.
"""

from __future__ import annotations

import numpy as np

from pagoda.core.config import SchedulerConfig
from pagoda.core.errors import CapacityError, InvalidRequest
from pagoda.core.plan import LongArray, StepPlan
from pagoda.core.sampling_params import MAX_SEQUENCES
from pagoda.kv_cache import KVCacheManager
from pagoda.scheduler.board import Board
from pagoda.scheduler.decisions import Decision, Reason
from pagoda.scheduler.draft import PlanDigester, StepInFlight
from pagoda.scheduler.events import Cancel, Pause, PlanMade, PushBack, Resume, StepOutcome, Stop, Submit
from pagoda.scheduler.log import DecisionLog
from pagoda.scheduler.planner import Planner
from pagoda.scheduler.sequence import FreshState, State


class Scheduler:
    """`plan` decides a step, `commit` takes its result; between them come submit, cancel and the other events."""

    def __init__(self, config: SchedulerConfig, cache: KVCacheManager, log: DecisionLog | None = None) -> None:
        self.config = config
        self.cache = cache
        self.board = Board(config, cache, log if log is not None else DecisionLog())
        self._planner = Planner(self.board)
        self._digester = PlanDigester()
        self.log.attach(self.board)

    @property
    def log(self) -> DecisionLog:
        return self.board.log

    @property
    def has_work(self) -> bool:
        """Whether another plan could do something: what is paused waits for an event, not for a plan."""
        return len(self.board.sequences) > self.board.num_paused

    @property
    def num_running(self) -> int:
        return self.board.rows.num_running

    @property
    def num_waiting(self) -> int:
        return len(self.board.queue) + len(self.board.waits)

    @property
    def num_paused(self) -> int:
        return self.board.num_paused

    def submit(self, event: Submit) -> None:
        """Queue a request, or refuse one that could never run here."""
        self.log.record(event)
        self._refuse_impossible(event)
        fresh = FreshState(self.board.next_number, self.board.next_arrival, event)
        self.board.next_number += 1
        self.board.next_arrival += 1
        sequence = self.board.put_fresh(fresh)
        self.board.note(sequence, Reason.QUEUED, event.num_prompt_tokens, len(self.board.queue) - 1)
        self.board.fresh[fresh.number] = fresh

    def cancel(self, event: Cancel) -> list[int]:
        """End all sequences of a request; their numbers. A request that is not here any more is no error."""
        self.log.record(event)
        ended = list(self.board.requests.get(event.request_id, ()))
        for sequence in ended:
            self.board.end(sequence, "abort")
        return [sequence.number for sequence in ended]

    def stop(self, event: Stop) -> None:
        self.log.record(event)
        sequence = self.board.sequences.get(event.sequence)
        if sequence is not None:
            self.board.end(sequence, event.reason)

    def push_back(self, event: PushBack) -> None:
        """Preempt a running sequence on demand."""
        self.log.record(event)
        sequence = self.board.sequences.get(event.sequence)
        if sequence is not None and sequence.state is State.RUNNING:
            self.board.stopped_rows.append(sequence.row)
            self.board.preempt(sequence, "")

    def pause(self, event: Pause) -> None:
        """Give a request no more tokens. Like its end, its pause may come when it is not here any more."""
        self.log.record(event)
        for sequence in self.board.requests.get(event.request_id, ()):
            self.board.pause(sequence)

    def resume(self, event: Resume) -> None:
        self.log.record(event)
        for sequence in self.board.requests.get(event.request_id, ()):
            self.board.resume(sequence)

    def plan(self, now: float) -> StepPlan:
        """Decide the next step. `now` only dates the log; it decides nothing."""
        self.log.make_room()
        self.cache.clock += 1
        self.board.step_id += 1
        plan = self._planner.plan()
        self.log.record(PlanMade(plan.step_id, now, self._digester.digest(plan)))
        return plan

    def commit(self, outcome: StepOutcome) -> None:
        """Take the result of the oldest step in flight."""
        self.log.record(outcome)
        step = self.board.in_flight.popleft()
        assert step.step_id == outcome.step_id, "results must come in the order of the plans"
        for update in outcome.page_names:
            named = self.board.sequences.get(update.sequence)
            if named is not None:
                named.page_names.extend(update.names)
        self._settle(step, outcome)
        for finished in outcome.finished:
            sequence = self.board.sequences.get(finished.sequence)
            if sequence is not None:
                self.board.end(sequence, finished.reason)

    def _refuse_impossible(self, event: Submit) -> None:
        if event.request_id in self.board.requests:
            raise InvalidRequest("request_id", f"{event.request_id!r} is already here; ids must be unique")
        if not 1 <= event.num_samples <= MAX_SEQUENCES:
            raise InvalidRequest("num_samples", f"must lie between 1 and {MAX_SEQUENCES}, not {event.num_samples}")
        if not 1 <= event.num_prompt_tokens < event.max_total_tokens:
            most = event.max_total_tokens - 1
            raise InvalidRequest("num_prompt_tokens", f"must lie between 1 and {most}, not {event.num_prompt_tokens}")
        for group, (needed, pool) in enumerate(zip(self.board.most_pages(event), self.cache.pools, strict=True)):
            if needed > pool.num_pages:
                self.log.note(
                    Decision(self.board.step_id, event.request_id, 0, Reason.REFUSED, (needed, pool.num_pages, group))
                )
                raise CapacityError(
                    f"request {event.request_id!r} can never run: {event.num_prompt_tokens} prompt tokens growing to "
                    f"{event.max_total_tokens} need {needed} pages of {self.cache.page_size} tokens, and there are "
                    f"{pool.num_pages}; lower max_tokens or give more num_pages"
                )

    def _settle(self, step: StepInFlight, outcome: StepOutcome) -> None:
        rows = self.board.rows
        if step.ones is not None and outcome.num_new is None and step.num_moves == rows.num_moves:
            self._settle_repeated(step.ones)
            return
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
        (full,) = (after % self.cache.page_size < after - before).nonzero()  # a page's last token was among them
        for row in present[full].tolist() if len(full) else ():
            self.board.page_completed(rows.tenant(row))

    def _settle_repeated(self, ones: LongArray) -> None:
        """One more token of each row, all of them where they were."""
        rows = self.board.rows
        rows.settled += ones
        rows.in_flight -= ones
        (full,) = (ones > rows.settled % self.cache.page_size).nonzero()
        for row in full.tolist():
            self.board.page_completed(rows.tenant(row))

    def _settle_moved_out(self, step: StepInFlight, moved: np.ndarray, refused: np.ndarray | None) -> None:
        """Results for those that lost their rows since: who was pushed back keeps its tokens, who ended does not."""
        for entry in np.flatnonzero(moved):
            sequence = self.board.sequences.get(int(step.sequences[entry]))
            if sequence is None or sequence.state is not State.DRAINING:
                continue
            if refused is not None:
                sequence.num_known -= int(refused[entry])
            sequence.num_in_flight -= 1
            if not sequence.num_in_flight:
                self.board.requeue(sequence)

    def check_integrity(self) -> None:
        self.board.check_integrity()
