"""The same request gives the same tokens, whoever shares the batch and however the steps are cut.

Sums of float32 round differently in batches of different shapes, so a choice between two tokens that are nearly equal
may fall the other way. Two answers may therefore part where the two best candidates lie within `CLOSE`, and only there.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pagoda import LLM, SamplingParams
from pagoda.decoding import SamplingState
from pagoda.engine.messages import PushBackRequest, Started, Update
from pagoda.kernels.reference import ReferenceOperators
from pagoda.kernels.reference.philox import Stream, gumbel
from pagoda.kernels.reference.sampling.chain import _shape, candidates
from pagoda.scheduler.decisions import Reason
from tests.models.paged import PagedRunner

CLOSE = 1e-3
PAGE_SIZE = 16


@dataclass(frozen=True)
class Case:
    prompt: tuple[int, ...]
    sampling: SamplingParams


@dataclass(frozen=True)
class Variant:
    """How the cases are run: how many together, in what chunks, with or without what else."""

    batch: int
    chunk: int
    caching: bool = True
    is_reversed: bool = False
    preempts: bool = False

    def settings(self) -> dict[str, object]:
        return {
            "max_num_seqs": min(self.chunk, self.batch),
            "max_num_batched_tokens": self.chunk,
            "enable_prefix_caching": self.caching,
            "block_size": PAGE_SIZE,
        }

    def __str__(self) -> str:
        words = [f"batches of {self.batch}", f"chunks of {self.chunk}", "cached" if self.caching else "uncached"]
        words += ["reversed"] * self.is_reversed + ["preempted"] * self.preempts
        return ", ".join(words)


ALONE = Variant(1, 512, caching=False)
VARIANTS = [
    Variant(1, 16),
    Variant(8, 16),
    Variant(8, 512),
    Variant(64, 16),
    Variant(64, 512),
    Variant(64, 512, caching=False),
    Variant(64, 512, is_reversed=True),
    Variant(64, 64, preempts=True),
    Variant(64, 64, caching=False, preempts=True),
]

Answers = list[list[list[int]]]
"""By case, by sample: token ids."""


def mixed_sampling(rng: random.Random, most_tokens: int) -> SamplingParams:
    """Greedy or drawn, one sample or three, short or long."""
    fields: dict[str, object] = {
        "n": rng.choice([1, 1, 3]),
        "max_tokens": rng.randrange(4, most_tokens + 1),
        "ignore_eos": True,
        "temperature": 0.0,
    }
    if rng.random() < 0.6:
        fields |= {"temperature": rng.choice([0.5, 0.8, 1.0]), "seed": rng.randrange(1 << 40)}
        fields |= rng.choice([{}, {"top_k": 20}, {"top_p": 0.9}, {"min_p": 0.02}])
    fields |= rng.choice([{}, {}, {}, {"repetition_penalty": 1.2}, {"presence_penalty": 0.7}])
    return SamplingParams(**fields)  # type: ignore[arg-type]


def run(llm: LLM, cases: Sequence[Case], variant: Variant, seed: int = 0) -> Answers:
    """The answers in the order of the cases, whatever the order in which they were asked for."""
    order = list(range(len(cases)))
    if variant.is_reversed:
        order.reverse()
    pusher = PushesEveryRequestBack(llm, seed) if variant.preempts else None
    answers: Answers = [[] for _ in cases]
    for start in range(0, len(order), variant.batch):
        part = order[start : start + variant.batch]
        prompts = [list(cases[index].prompt) for index in part]
        outputs = llm.generate(prompts, [cases[index].sampling for index in part], use_tqdm=False)
        for index, output in zip(part, outputs, strict=True):
            answers[index] = [sample.token_ids for sample in output.outputs]
    if pusher is not None:
        pusher.check(len(cases))
    return answers


class PushesEveryRequestBack:
    """A test policy: every request is preempted once while it runs, at a random step."""

    def __init__(self, llm: LLM, seed: int) -> None:
        self._loop = llm.engine.loop
        self._random = random.Random(seed)
        self._running: set[str] = set()  # and not pushed back yet
        self._step = self._loop.step
        self._loop.step = self.step  # type: ignore[method-assign]

    def step(self, *meanwhile: Any) -> list[Update]:
        for request_id in sorted(self._running):
            if self._is_near_its_end(request_id) or self._random.random() < 0.15:
                self._running.remove(request_id)
                self._loop.inbox.append(PushBackRequest(request_id))
        updates = self._step(*meanwhile)
        self._running.update(update.request_id for update in updates if isinstance(update, Started))
        return updates

    def _is_near_its_end(self, request_id: str) -> bool:
        accepted = self._loop._answers.get(request_id)
        assert accepted is not None, "it ended before it was pushed back"
        return any(len(answer.token_ids) >= answer.limit - 2 for answer in accepted.answers.values())

    def check(self, num_requests: int) -> None:
        self._loop.step = self._step  # type: ignore[method-assign]
        decisions = self._loop.scheduler.log.decisions()
        preempted = {entry.request_id for entry in decisions if entry.reason is Reason.PREEMPTED}
        assert len(preempted) == num_requests, "some request was never pushed back"
        waited = any(entry.reason is Reason.WAITS_FOR_PAGES for entry in decisions)
        assert waited, "the pool held everybody at once"


def differences(llm: LLM, cases: Sequence[Case], expected: Answers, found: Answers) -> list[str]:
    """Where answers part: a line for each close choice. A parting that is not close is an error."""
    lines = []
    for number, (case, before, after) in enumerate(zip(cases, expected, found, strict=True)):
        assert len(before) == len(after) == case.sampling.n
        for sample_index, (one, other) in enumerate(zip(before, after, strict=True)):
            if one == other:
                continue
            place = next((i for i, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), None)
            assert place is not None, f"case {number}, sample {sample_index}: one answer is longer than the other"
            gap = distance_of_best(llm, case, sample_index, one[:place])
            line = (
                f"case {number}, sample {sample_index}, token {place}: "
                f"{one[place]} or {other[place]}, {gap:.2e} between the two best"
            )
            assert gap < CLOSE, line
            lines.append(line)
    return lines


def distance_of_best(llm: LLM, case: Case, sample_index: int, output: Sequence[int]) -> float:
    """Between the two best candidates for the next token, as the sampler ranks them."""
    tokens = [*case.prompt, *output]
    runner = PagedRunner(llm.engine.model, ReferenceOperators(), PAGE_SIZE)
    logits = runner.step({"row": tokens})["row"][-1:].astype(np.float32)
    state = SamplingState(1)
    state.add(0, case.sampling, case.sampling.seed or 0, sample_index, list(case.prompt), list(output))
    batch = state.batch(np.array([0]), np.array([len(tokens)]))
    ranked = _shape(logits, batch)[0].astype(np.float64)
    if batch.draws is not None:
        pool = candidates(ranked.astype(np.float32), batch.draws, 0)
        stream = Stream(int(batch.draws.seeds[0]), sample_index, len(tokens))
        ranked = pool.logits + gumbel(stream, pool.token_ids)
    if len(ranked) == 1:
        return float("inf")
    second, best = np.sort(ranked)[-2:]
    return float(best - second)
