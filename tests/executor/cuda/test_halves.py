"""Steps that are always done in halves, on the plain executor: no answer may show it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from pagoda.core.errors import EngineError
from pagoda.core.plan import RowPayload, StepPlan
from pagoda.core.result import StepResult
from pagoda.core.sampling_params import SamplingParams
from pagoda.engine.messages import AddRequest, NewTokens, PromptScores
from pagoda.executor.cuda.halves import Halving, halve
from tests.executor.cuda.test_executor import plain_loop, some_requests, vectors
from tests.kernels.cpu.families import make_family


class InHalves:
    """Stands before an executor that has memory for steps of fewer tokens than `most`."""

    lateness = 0

    def __init__(self, executor: Any, most: int) -> None:
        self._executor = executor
        self._most = most
        self._results: deque[StepResult] = deque()
        self._halving = Halving(self._compute)
        self.error: RuntimeError = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 MiB")

    @property
    def num_halved_steps(self) -> int:
        return self._halving.num_steps

    @property
    def num_in_flight(self) -> int:
        return len(self._results)

    def submit(self, plan: StepPlan, payloads: Sequence[RowPayload]) -> None:
        nothing = np.zeros(0, np.int32)
        none = {name: getattr(plan, name)[:0] for name in ("rows", "sequences", "num_tokens", "num_drafts", "draws")}
        orders = replace(plan, **none)
        self._executor.submit(orders, payloads)
        assert len(self._executor.collect().token_ids) == 0
        is_empty = StepResult(plan.step_id, nothing, nothing)
        self._results.append(is_empty if plan.is_empty else self._halving._try(plan))

    def collect(self) -> StepResult:
        return self._results.popleft()

    def _compute(self, plan: StepPlan) -> StepResult:
        if plan.num_tokens.sum() >= self._most:
            raise self.error
        bare = replace(plan, stopped=(), page_copies=(), started=(), table_updates=())
        self._executor.submit(bare, ())
        return self._executor.collect()


def told(loop: Any, requests: list[Any]) -> dict[str, list[Any]]:
    """By request and sample: tokens and their scores, one after the other."""
    loop.inbox.extend(AddRequest(request) for request in requests)
    found: dict[str, list[Any]] = {}
    while loop.has_work:
        for update in loop.step():
            if isinstance(update, NewTokens):
                name = f"{update.request_id}.{update.sample_index}"
                found.setdefault(name, []).extend(update.token_ids)
                found.setdefault(f"{name} scores", []).extend(numbers(update.logprobs))
            elif isinstance(update, PromptScores):
                found.setdefault(f"{update.request_id} prompt", []).extend(numbers(update.scores))
    return found


def numbers(nested: Any) -> Iterator[float]:
    if isinstance(nested, int | float):
        yield nested
    else:
        for part in nested:
            yield from numbers(part)


SAMPLINGS = [
    SamplingParams(temperature=0, max_tokens=8),
    SamplingParams(temperature=0.9, max_tokens=8, seed=3, n=2, logprobs=2),
    SamplingParams(temperature=0.7, max_tokens=5, seed=4, prompt_logprobs=1, repetition_penalty=1.2),
]


@pytest.mark.parametrize("most", [2, 9])
@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["greedy", "drawn", "scored"])
def test_answers_do_not_show_that_steps_were_halved(sampling: SamplingParams, most: int, tmp_path: Path) -> None:
    model = make_family("qwen3", tmp_path)
    requests = some_requests(model.config.vocab_size, sampling, 5)
    loop = plain_loop(model)
    loop.executor = InHalves(loop.executor, most)
    found, expected = told(loop, requests), told(plain_loop(model), requests)
    assert loop.executor.num_halved_steps > 10
    assert found.keys() == expected.keys()
    for name, values in expected.items():  # products of fewer rows may round otherwise
        np.testing.assert_allclose(found[name], values, rtol=0, atol=1e-4, err_msg=name)


def test_vectors_do_not_show_it_either(tmp_path: Path) -> None:
    model = make_family("qwen3", tmp_path)
    requests = [
        msgspec.structs.replace(request, task="embed", pooling=pooling)
        for request, pooling in zip(
            some_requests(model.config.vocab_size, SamplingParams(max_tokens=1), 3),
            ("mean", "last", "mean"),
            strict=True,
        )
    ]
    loop = plain_loop(model)
    loop.executor = InHalves(loop.executor, 2)
    found, expected = vectors(loop, requests), vectors(plain_loop(model), requests)
    assert found.keys() == expected.keys()
    for name, vector in expected.items():
        np.testing.assert_allclose(found[name], vector, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("text", "is_halved"),
    [
        ("Triton Error [CUDA]: out of memory", True),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", True),
        ("CUDA error: an illegal memory access was encountered", False),
    ],
)
def test_libraries_say_in_words_that_memory_ran_out(text: str, is_halved: bool, tmp_path: Path) -> None:
    model = make_family("qwen3", tmp_path)
    requests = some_requests(model.config.vocab_size, SamplingParams(temperature=0, max_tokens=3), 2)
    loop = plain_loop(model)
    loop.executor = InHalves(loop.executor, 9)
    loop.executor.error = RuntimeError(text)
    if is_halved:
        assert told(loop, requests) == told(plain_loop(model), requests)
    else:
        with pytest.raises(EngineError, match="illegal memory access"):
            told(loop, requests)


def test_one_token_has_no_halves() -> None:
    one = np.ones(1, np.int32)
    plan = StepPlan(7, (), (), (), (), one, one.astype(np.int64), one, 0 * one, one.astype(np.bool_))
    assert halve(plan) is None
    first, second = halve(replace(plan, num_tokens=5 * one)) or (plan, plan)
    assert (first.num_tokens.tolist(), second.num_tokens.tolist()) == ([2], [3])
    assert not first.draws.any() and second.draws.all()
