"""A scheduler on a desk: submit prompts, ask for plans and hand in results by hand, one line each."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from pagoda.core.cache import CacheGroup
from pagoda.core.config import SchedulerConfig
from pagoda.core.plan import StepPlan
from pagoda.kv_cache import KVCacheManager, extend_chain, root_hash
from pagoda.scheduler import Finished, Scheduler, StepOutcome, Submit
from pagoda.scheduler.decisions import Decision, Reason
from pagoda.scheduler.sequence import Sequence as Sample

FULL = CacheGroup("full", (0,), 1, 8)
WINDOW = CacheGroup("window", (1,), 1, 8, window=8)


class Desk:
    def __init__(
        self,
        num_pages: int = 100,
        page_size: int = 4,
        groups: Sequence[CacheGroup] = (FULL,),
        caching: bool = True,
        **config: Any,
    ) -> None:
        sizes = [num_pages] * len(groups)
        self.cache = KVCacheManager(groups, sizes, page_size, caching)
        self.scheduler = Scheduler(SchedulerConfig(**{"max_num_seqs": 8, **config}), self.cache)
        self.in_flight: deque[StepPlan] = deque()
        self.request_of: dict[int, str] = {}

    def submit(self, request_id: str, prompt: Sequence[int], max_new: int = 10, **fields: Any) -> None:
        self.scheduler.submit(
            Submit(
                request_id=request_id,
                num_prompt_tokens=len(prompt),
                max_total_tokens=len(prompt) + max_new,
                page_names=tuple(extend_chain(root_hash("m"), prompt, self.cache.page_size)),
                **fields,
            )
        )

    def plan(self) -> StepPlan:
        plan = self.scheduler.plan(0.0)
        self.in_flight.append(plan)
        self.request_of |= {start.sequence: start.request_id for start in plan.started}
        self.scheduler.check_integrity()
        return plan

    def commit(self, *finished: str, num_new: tuple[int, ...] | None = None) -> None:
        """The result of the oldest plan; `finished` are requests whose first sample ends."""
        ends = tuple(Finished(self.sample(request_id).number, "stop") for request_id in finished)
        step_id = self.in_flight.popleft().step_id
        self.scheduler.commit(StepOutcome(step_id=step_id, num_new=num_new, finished=ends))
        self.scheduler.check_integrity()

    def step(self, *finished: str) -> StepPlan:
        plan = self.plan()
        self.commit(*finished)
        return plan

    def sample(self, request_id: str, index: int = 0) -> Sample:
        return next(s for s in self.scheduler.board.requests[request_id] if s.sample_index == index)

    def tokens(self, plan: StepPlan) -> dict[str, int]:
        """What the plan gives to each request, over all its samples."""
        given: dict[str, int] = {}
        for number, count in zip(plan.sequences.tolist(), plan.num_tokens.tolist(), strict=True):
            request_id = self.request_of[number]
            given[request_id] = given.get(request_id, 0) + count
        return given

    def reasons(self, request_id: str, index: int = 0) -> list[Reason]:
        decisions = self.scheduler.log.decisions(request_id)
        return [decision.reason for decision in decisions if decision.sample_index == index]

    def last(self, request_id: str, reason: Reason) -> Decision:
        return [d for d in self.scheduler.log.decisions(request_id) if d.reason is reason][-1]


def text(start: int, length: int) -> list[int]:
    """A prompt that shares no page with one that starts elsewhere."""
    return list(range(start, start + length))
