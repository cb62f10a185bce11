"""A random life for a scheduler: requests come, fork, pause, end, are cancelled and pushed back; results come late."""

from __future__ import annotations

import random
from collections import Counter, deque
from dataclasses import dataclass, field

from pagoda.core.cache import CacheGroup
from pagoda.core.config import SchedulerConfig
from pagoda.core.errors import CapacityError
from pagoda.core.plan import StepPlan
from pagoda.kv_cache import KVCacheManager, extend_chain, root_hash
from pagoda.scheduler import (
    Cancel,
    DecisionLog,
    Finished,
    PageNames,
    Pause,
    PushBack,
    Resume,
    Scheduler,
    StepOutcome,
    Stop,
    Submit,
)
from pagoda.scheduler.decisions import Decision, Reason
from pagoda.scheduler.draft import plan_digest
from tests.scheduler.paper_device import VOCABULARY, PaperDevice

FULL = CacheGroup("full", (0,), 1, 8)
WINDOW = CacheGroup("window", (1,), 1, 8, window=20)


class CountingLog(DecisionLog):
    """Counts what the bounded log may have dropped by the time a test looks."""

    def __init__(self, segment_entries: int) -> None:
        super().__init__(segment_entries)
        self.reasons: Counter[Reason] = Counter()
        self.pushed_by_scheduler: Counter[tuple[str, int]] = Counter()

    def note(self, decision: Decision) -> None:
        super().note(decision)
        self.reasons[decision.reason] += 1
        if decision.reason is Reason.PREEMPTED and decision.other:
            self.pushed_by_scheduler[decision.request_id, decision.sample_index] += 1


@dataclass
class Answer:
    """What the driver knows of one sequence, checked against what the scheduler plans for it."""

    request_id: str
    sample_index: int
    tokens: list[int]
    num_prompt: int
    goal: int
    num_named: int
    num_computed: int = 0


@dataclass
class LateStep:
    """A plan on its way to the device, with the known tokens of the sequences it starts."""

    plan: StepPlan
    texts: dict[int, list[int]]


@dataclass
class RandomLife:
    """Drives a scheduler with seeded random events and checks every plan against an independent count."""

    seed: int
    delay: int = 0
    num_drafts: int = 0
    policy: str = "fcfs"
    groups: tuple[CacheGroup, ...] = (FULL,)
    num_pages: int = 40
    page_size: int = 4
    max_num_seqs: int = 6
    caching: bool = True
    segment_entries: int = 1_000_000
    answers: dict[int, Answer] = field(default_factory=dict)
    prompts: dict[str, list[int]] = field(default_factory=dict)
    unfinished: dict[str, int] = field(default_factory=dict)
    plans: list[bytes] = field(default_factory=list)
    pending: deque[LateStep] = field(default_factory=deque)
    num_finished: int = 0
    paused: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        config = SchedulerConfig(
            policy=self.policy,  # type: ignore[arg-type]
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=max(self.max_num_seqs * (1 + self.num_drafts), 24),
            num_draft_tokens=self.num_drafts,
        )
        sizes = [self.num_pages for _ in self.groups]
        self.cache = KVCacheManager(self.groups, sizes, self.page_size, self.caching)
        self.log = CountingLog(self.segment_entries)
        self.scheduler = Scheduler(config, self.cache, self.log)
        self.device = PaperDevice(self.groups, sizes, self.page_size, self.seed)
        self.row_of: dict[int, int] = {}
        self.tables: dict[int, list[list[int]]] = {}
        self.recent: deque[list[int]] = deque(maxlen=6)  # prompts that new ones begin like
        self.num_submitted = 0
        self.time = 0.0

    def step(self, load: float = 0.5) -> None:
        """One turn of the loop: some events, a plan, and the result of an older plan."""
        while self.random.random() < load and len(self.unfinished) < 40:
            self.submit()
        if self.random.random() < 0.05 and self.unfinished:
            self.cancel(self.random.choice(list(self.unfinished)))
        if self.random.random() < 0.05 and self.row_of:
            self.scheduler.push_back(PushBack(self.random.choice(list(self.row_of.values()))))
        if self.random.random() < 0.02 and self.row_of:
            self.stop(self.random.choice(list(self.row_of.values())))
        if self.random.random() < 0.08 and self.unfinished:
            self.pause(self.random.choice(list(self.unfinished)))
        if self.random.random() < 0.08 and self.paused:
            self.resume(self.random.choice(sorted(self.paused)))
        self.time += 0.01
        self._turn()

    def _turn(self) -> None:
        plan = self.scheduler.plan(self.time)
        self.plans.append(plan_digest(plan))
        self.take(plan)
        texts = {start.sequence: list(self.answers[start.sequence].tokens) for start in plan.started}
        self.pending.append(LateStep(plan, texts))
        if len(self.pending) > self.delay:
            self.give(self.pending.popleft())

    def submit(self) -> None:
        rng = self.random
        stem = rng.choice(self.recent)[: rng.randrange(40)] if self.recent and rng.random() < 0.5 else []
        prompt = stem + [rng.randrange(VOCABULARY) for _ in range(rng.randrange(1, 30))]
        self.recent.append(prompt)
        request_id = f"r{self.num_submitted}"
        self.num_submitted += 1
        names = extend_chain(root_hash("m"), prompt, self.page_size) if self.caching else []
        event = Submit(
            request_id=request_id,
            num_prompt_tokens=len(prompt),
            max_total_tokens=len(prompt) + rng.randrange(1, 40),
            num_samples=rng.choice([1, 1, 1, 2, 4]),
            priority=rng.randrange(3),
            page_names=tuple(names),
            reads_prefix_cache=rng.random() < 0.9,
        )
        try:
            self.scheduler.submit(event)
        except CapacityError:
            most = self.cache.num_pages_for(event.max_total_tokens)
            assert most > self.num_pages or len(self.groups) > 1
            return
        self.prompts[request_id] = prompt
        self.unfinished[request_id] = event.num_samples

    def cancel(self, request_id: str) -> None:
        for number in self.scheduler.cancel(Cancel(request_id)):
            self.answers.pop(number, None)
        assert request_id not in {answer.request_id for answer in self.answers.values()}
        self._ended(request_id)

    def pause(self, request_id: str) -> None:
        self.scheduler.pause(Pause(request_id))
        self.paused.add(request_id)

    def resume(self, request_id: str) -> None:
        self.scheduler.resume(Resume(request_id))
        self.paused.remove(request_id)

    def stop(self, number: int) -> None:
        if number in self.answers and self.answers[number].num_computed >= self.answers[number].num_prompt:
            self.scheduler.stop(Stop(number, "stop"))
            self._finished(number)

    def take(self, plan: StepPlan) -> None:
        """Check that the plan makes sense to somebody who has followed all plans so far."""
        for row in plan.stopped:
            self.row_of.pop(row, None)
        for start in plan.started:
            assert start.request_id not in self.paused, "a paused request was started"
            assert start.row not in self.row_of, "a row was given away twice"
            self.row_of[start.row] = start.sequence
            answer = self.answers.get(start.sequence)
            if answer is None:
                prompt = self.prompts[start.request_id]
                goal = self.scheduler.board.sequences[start.sequence].submit.max_total_tokens
                named = len(prompt) // self.page_size
                answer = Answer(start.request_id, start.sample_index, list(prompt), len(prompt), goal, named)
                self.answers[start.sequence] = answer
            answer.num_computed = start.num_computed
            assert start.num_computed < len(answer.tokens)
            self.tables[start.row] = [list(pages) for pages in start.page_tables]
        for update in plan.table_updates:
            table = self.tables[update.row][update.group]
            table[update.start : update.start + len(update.pages)] = update.pages
        assert plan.num_tokens.sum() <= self.scheduler.config.max_num_batched_tokens
        assert len(set(plan.rows.tolist())) == len(plan.rows)
        self._check_writes(plan)

    def _check_writes(self, plan: StepPlan) -> None:
        """No two rows write to one page in a step, and no row writes to a page that others read as a full one."""
        written: list[set[int]] = [set() for _ in self.groups]
        for row, number, tokens in zip(plan.rows, plan.sequences, plan.num_tokens, strict=True):
            assert self.row_of[int(row)] == int(number)
            answer = self.answers[int(number)]
            assert answer.request_id not in self.paused, "a paused request was given tokens"
            first = answer.num_computed // self.page_size
            last = (answer.num_computed + int(tokens) - 1) // self.page_size
            for group, pages in enumerate(self.tables[int(row)]):
                for page in pages[first : last + 1]:
                    assert page >= 0
                    assert page not in written[group], "two rows write to one page"
                    assert self.cache.pools[group].refs[page] == 1 and not self.cache.pools[group].cached[page]
                    written[group].add(page)
                assert len(pages) > last
            answer.num_computed += int(tokens)

    def give(self, step: LateStep) -> None:
        """Run a plan and report: tokens for those that drew, some drafts refused, some finished."""
        plan = step.plan
        drawn = self.device.execute(plan, step.texts)
        finished: list[Finished] = []
        names: list[PageNames] = []
        for number, drafts, tokens in zip(plan.sequences.tolist(), plan.num_drafts.tolist(), drawn, strict=True):
            answer = self.answers.get(number)
            if answer is None or not tokens:
                continue
            answer.num_computed -= 1 + drafts - len(tokens)
            answer.tokens += tokens
            assert len(answer.tokens) <= answer.goal
            names += self._new_names(number, answer)
            if len(answer.tokens) == answer.goal or self.random.random() < 0.03:
                finished.append(Finished(number, "stop"))
        given = tuple(len(tokens) for tokens in drawn) if self.num_drafts else None
        outcome = StepOutcome(step_id=plan.step_id, num_new=given, finished=tuple(finished), page_names=tuple(names))
        self.scheduler.commit(outcome)
        for end in finished:
            self._finished(end.sequence)

    def _new_names(self, number: int, answer: Answer) -> list[PageNames]:
        full = len(answer.tokens) // self.page_size
        if not self.caching or full == answer.num_named:
            return []
        every = extend_chain(root_hash("m"), answer.tokens, self.page_size)
        added = tuple(every[answer.num_named :])
        answer.num_named = full
        return [PageNames(number, added)]

    def _finished(self, number: int) -> None:
        answer = self.answers.pop(number)
        self.num_finished += 1
        self.unfinished[answer.request_id] -= 1
        if not self.unfinished[answer.request_id]:
            self._ended(answer.request_id)

    def _ended(self, request_id: str) -> None:
        del self.unfinished[request_id]
        self.paused.discard(request_id)

    def drain(self, limit: int = 20_000) -> None:
        """Let everything finish; it must, and nothing may be left over. Those that are paused stop nobody."""
        for _ in range(limit):
            if not self.unfinished.keys() - self.paused:
                break
            self._turn()
        assert self.unfinished.keys() == self.paused, f"stuck with {self.unfinished}, paused {self.paused}"
        assert not self.scheduler.has_work
        for request_id in sorted(self.paused):
            self.resume(request_id)
        for _ in range(limit):
            if not self.unfinished:
                break
            self._turn()
        assert not self.unfinished, f"stuck with {self.unfinished}"
        while self.pending:
            self.give(self.pending.popleft())
        assert not self.scheduler.has_work
        assert all(pool.num_used == 0 for pool in self.cache.pools), "pages leaked"
        assert len(self.scheduler.board.rows.free) == self.max_num_seqs, "rows leaked"
        pushed = self.log.pushed_by_scheduler.values()
        assert max(pushed, default=0) <= self.scheduler.config.max_preemptions, "pushed back more often than allowed"
