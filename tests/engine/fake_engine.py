"""A whole engine loop on the fake executor, and a driver that follows every answer to its end."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pagoda.core.cache import CacheGroup
from pagoda.core.config import SchedulerConfig
from pagoda.core.request import FinishReason, Request
from pagoda.core.sampling_params import SamplingParams
from pagoda.decoding import SeedSource
from pagoda.engine.loop import EngineLoop
from pagoda.engine.messages import AddRequest, Message, NewTokens, PromptScores, Rejected, Started
from pagoda.kv_cache import KVCacheManager
from pagoda.scheduler import DecisionLog, Scheduler
from pagoda.scheduler.replay import replay
from tests.fakes.executor import FakeExecutor
from tests.fakes.model import FakeModel

FULL = CacheGroup("full", (0,), 1, 8)
WINDOW = CacheGroup("window", (1,), 1, 8, window=6)
PAGE_SIZE = 4
MODEL = FakeModel()


@dataclass(frozen=True)
class Shape:
    """What a fake engine is built like."""

    lateness: int = 0
    num_drafts: int = 0
    groups: tuple[CacheGroup, ...] = (FULL,)
    caching: bool = True
    policy: str = "fcfs"
    num_pages: int = 64
    max_num_seqs: int = 6
    max_num_batched_tokens: int = 24
    max_model_len: int = 64


@dataclass
class Followed:
    """What came out for one request."""

    tokens: dict[int, list[int]] = field(default_factory=dict)
    reasons: dict[int, FinishReason] = field(default_factory=dict)
    started: list[Started] = field(default_factory=list)
    scores: list[int] = field(default_factory=list)
    rejected: Rejected | None = None
    stop_token_ids: dict[int, int | None] = field(default_factory=dict)


class FakeEngine:
    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        sizes = [shape.num_pages for _ in shape.groups]
        cache = KVCacheManager(shape.groups, sizes, PAGE_SIZE, shape.caching)
        config = SchedulerConfig(
            policy=shape.policy,  # type: ignore[arg-type]
            max_num_seqs=shape.max_num_seqs,
            max_num_batched_tokens=shape.max_num_batched_tokens,
            num_draft_tokens=shape.num_drafts,
        )
        ticks = itertools.count()
        self.scheduler = Scheduler(config, cache, DecisionLog(1_000_000))
        self.executor = FakeExecutor(MODEL, shape.groups, sizes, PAGE_SIZE, shape.lateness)
        self.loop = EngineLoop(
            self.scheduler,
            self.executor,
            model_name="fake",
            vocab_size=MODEL.vocab_size,
            max_model_len=shape.max_model_len,
            end_token_ids=MODEL.end_token_ids,
            seeds=SeedSource(7),
            clock=lambda: float(next(ticks)),
        )
        self.followed: dict[str, Followed] = {}
        self.requests: dict[str, Request] = {}

    def add(self, request: Request) -> None:
        self.requests[request.request_id] = request
        self.followed[request.request_id] = Followed()
        self.loop.inbox.append(AddRequest(request))

    def send(self, message: Message) -> None:
        self.loop.inbox.append(message)

    def step(self) -> None:
        for update in self.loop.step():
            self._follow(update)
        self.scheduler.check_integrity()

    def run(self, before_step: Callable[[int], None] = lambda number: None, most: int = 5_000) -> None:
        """Turn the loop until it has nothing left to do; `before_step` may send messages."""
        for number in range(most):
            before_step(number)
            if not self.loop.has_work:
                return
            self.step()
        raise AssertionError(f"still at work after {most} steps")

    def check_clean(self) -> None:
        """Nothing of any request is left behind."""
        assert not self.scheduler.has_work and not self.scheduler.board.sequences
        assert not self.scheduler.board.in_flight
        assert not self.executor.num_in_flight
        assert len(self.loop._answers) == 0 and not self.loop._answers._answers
        assert all(pool.num_used == 0 and pool.num_reserved == 0 for pool in self.scheduler.cache.pools)
        assert len(self.scheduler.board.rows.free) == self.shape.max_num_seqs
        assert not len(self.scheduler.board.waits) and not len(self.scheduler.board.queue)

    def check_replay(self) -> None:
        report = replay(self.scheduler.log.as_file())
        assert report.first_difference == ""
        assert report.num_plans == len(self.executor.plans)

    def check_answers(self) -> None:
        """Every request got what the model alone would have said."""
        for request_id, request in self.requests.items():
            found = self.followed[request_id]
            assert len(found.started) == 1
            expected = self.expected(request_id)
            for sample_index, (tokens, reason) in enumerate(expected):
                assert found.tokens[sample_index] == tokens, (request_id, sample_index)
                assert found.reasons[sample_index] == reason
            if request.sampling.prompt_logprobs is not None:
                assert found.scores == list(request.prompt_token_ids[1:])

    def expected(self, request_id: str) -> list[tuple[list[int], FinishReason]]:
        request = self.requests[request_id]
        seed = self.followed[request_id].started[0].seed
        return [
            MODEL.answer(request.prompt_token_ids, request.sampling, seed, sample_index, self.shape.max_model_len)
            for sample_index in range(request.sampling.n)
        ]

    def _follow(self, update: object) -> None:
        match update:
            case Started():
                self.followed[update.request_id].started.append(update)
            case Rejected():
                self.followed[update.request_id].rejected = update
            case PromptScores():
                found = self.followed[update.request_id].scores
                for place, score in update.scores:
                    assert place == len(found) + 1, "prompt scores came twice or out of order"
                    found.append(score.token_id)
            case NewTokens():
                self._follow_tokens(update)

    def _follow_tokens(self, update: NewTokens) -> None:
        found = self.followed[update.request_id]
        assert update.sample_index not in found.reasons, "an answer went on after its end"
        found.tokens.setdefault(update.sample_index, []).extend(update.token_ids)
        if self.requests[update.request_id].sampling.logprobs is not None:
            assert [score.token_id for score in update.logprobs] == list(update.token_ids)
        if update.finish_reason is not None:
            found.reasons[update.sample_index] = update.finish_reason
            found.stop_token_ids[update.sample_index] = update.stop_token_id


def request(
    request_id: str, prompt: Sequence[int], priority: int = 0, cache_salt: str = "", **sampling: object
) -> Request:
    params = SamplingParams(**({"max_tokens": 12, "seed": 5} | sampling))  # type: ignore[arg-type]
    return Request(
        request_id=request_id,
        prompt_token_ids=tuple(prompt),
        sampling=params,
        priority=priority,
        cache_salt=cache_salt,
    )
