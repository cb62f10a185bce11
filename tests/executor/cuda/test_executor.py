"""The CUDA executor under the whole engine, on tiny models of every family, against the plain NumPy engine."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from pagoda.core.cache import CacheGroup
from pagoda.core.config import SchedulerConfig
from pagoda.core.errors import EngineError
from pagoda.core.request import Request
from pagoda.core.result import TokenLogprob
from pagoda.core.sampling_params import SamplingParams
from pagoda.decoding import SeedSource
from pagoda.engine.loop import EngineLoop
from pagoda.engine.messages import AddRequest, Embedded, NewTokens, PromptScores
from pagoda.executor import LocalExecutor, PageStore, WorkerRows
from pagoda.executor.cuda.build import CudaBuilder
from pagoda.executor.cuda.parts import DeviceSizes
from pagoda.executor.forward import EagerForward
from pagoda.executor.memory import FixedCosts, MemoryPlan
from pagoda.kernels.reference import ReferenceOperators
from pagoda.kv_cache import KVCacheManager
from pagoda.models import Model
from pagoda.scheduler import Scheduler
from pagoda.scheduler.decisions import Reason
from tests.kernels.cpu.families import FAMILIES, make_family

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PAGE_SIZE = 16
MAX_LEN = 128
NUM_ROWS = 4
BUDGET = 24


def make_loop(model: Model, executor: object, num_pages: int = 40) -> EngineLoop:
    groups: tuple[CacheGroup, ...] = model.cache_groups()
    cache = KVCacheManager(groups, [num_pages] * len(groups), PAGE_SIZE)
    scheduler = Scheduler(SchedulerConfig(max_num_seqs=NUM_ROWS, max_num_batched_tokens=BUDGET), cache)
    return EngineLoop(
        scheduler,
        executor,  # type: ignore[arg-type]
        model_name="tiny",
        vocab_size=model.config.vocab_size,
        max_model_len=MAX_LEN,
        seeds=SeedSource(3),
    )


def cuda_loop(model: Model, num_pages: int = 40, quantization: str = "none", warms_up: bool = True) -> EngineLoop:
    builder = CudaBuilder(model, "float32", quantization, DEVICE)
    builder.load(memory_for(model, num_pages), DeviceSizes(NUM_ROWS, BUDGET, PAGE_SIZE))
    executor = builder.make_executor(())
    if warms_up:
        executor.warm_up()
    return make_loop(model, executor, num_pages)


def memory_for(model: Model, num_pages: int) -> MemoryPlan:
    groups = model.cache_groups()
    return MemoryPlan(
        num_pages=(num_pages,) * len(groups),
        max_model_len=MAX_LEN,
        costs=FixedCosts(weights=0),
        row_lines={},
        page_bytes=(0,) * len(groups),
        budget_bytes=0,
    )


def plain_loop(model: Model, num_pages: int = 40) -> EngineLoop:
    groups = model.cache_groups()
    operators = ReferenceOperators()
    pages = PageStore(groups, [num_pages] * len(groups), PAGE_SIZE)
    rows = WorkerRows(NUM_ROWS, MAX_LEN, PAGE_SIZE, len(groups))
    executor = LocalExecutor(operators, EagerForward(model, operators, pages.layers), rows, pages, ())
    return make_loop(model, executor, num_pages)


def answers(loop: EngineLoop, requests: list[Request]) -> dict[tuple[str, int], list[int]]:
    found: dict[tuple[str, int], list[int]] = {}
    loop.inbox.extend(AddRequest(request) for request in requests)
    while loop.has_work:
        for update in loop.step():
            if isinstance(update, NewTokens):
                found.setdefault((update.request_id, update.sample_index), []).extend(update.token_ids)
    loop.scheduler.check_integrity()
    return found


def vectors(loop: EngineLoop, requests: list[Request]) -> dict[str, np.ndarray]:
    loop.inbox.extend(AddRequest(request) for request in requests)
    found = {}
    while loop.has_work:
        for update in loop.step():
            if isinstance(update, Embedded):
                found[update.request_id] = np.frombuffer(update.vector, np.float32)
    return found


def some_requests(vocab_size: int, sampling: SamplingParams, count: int = 6) -> list[Request]:
    rng = random.Random(5)
    shared = [rng.randrange(vocab_size) for _ in range(20)]
    prompts = [
        (shared if index % 2 else []) + [rng.randrange(vocab_size) for _ in range(rng.randint(1, 40))]
        for index in range(count)
    ]
    return [
        Request(request_id=f"r{index}", prompt_token_ids=tuple(prompt), sampling=sampling)
        for index, prompt in enumerate(prompts)
    ]


@pytest.mark.slow
def test_a_chunked_prompt_and_decoding_rows_in_one_step(tmp_path: Path) -> None:
    model = make_family("qwen3", tmp_path)
    requests = some_requests(model.config.vocab_size, SamplingParams(temperature=0, max_tokens=3), 2)
    assert answers(cuda_loop(model), requests) == answers(plain_loop(model), requests)


@pytest.mark.slow
def test_a_single_row_takes_a_way_of_its_own(tmp_path: Path) -> None:
    model = make_family("qwen3", tmp_path)
    [request, *_] = some_requests(model.config.vocab_size, SamplingParams(temperature=0, max_tokens=6), 1)
    assert answers(cuda_loop(model), [request]) == answers(plain_loop(model), [request])


@pytest.mark.slow
def test_a_prefix_is_read_by_the_step_after_the_one_that_computes_it(tmp_path: Path) -> None:
    model = make_family("llama", tmp_path)
    rng = random.Random(6)
    first, *shared = [rng.randrange(model.config.vocab_size) for _ in range(33)]
    sampling = SamplingParams(temperature=0, max_tokens=2)
    requests = [Request(request_id=f"r{n}", prompt_token_ids=(*shared, n, n + 1), sampling=sampling) for n in range(3)]
    loop = cuda_loop(model)
    answers(loop, [Request(request_id="before", prompt_token_ids=(first,), sampling=sampling)])
    assert loop.executor.lateness == 1
    assert answers(loop, requests) == answers(plain_loop(model), requests)
    started = [
        next(noted for noted in loop.scheduler.log.decisions(request.request_id) if noted.reason is Reason.ADMITTED)
        for request in requests
    ]
    owner = started[0].step_id
    assert [one.step_id - owner for one in started] == [0, 2, 2], "two chunks, and right behind the second"
    assert [one.values for one in started] == [(0, 34), (32, 2), (32, 2)]


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES if DEVICE == "cuda" else ["llama", "qwen3", "gemma3"])
def test_greedy_tokens_are_those_of_the_reference(family: str, tmp_path: Path) -> None:
    model = make_family(family, tmp_path)
    requests = some_requests(model.config.vocab_size, SamplingParams(temperature=0, max_tokens=12))
    assert answers(cuda_loop(model), requests) == answers(plain_loop(model), requests)


def distances_to_the_best(model: Model, tokens: tuple[int, ...]) -> tuple[np.ndarray, float]:
    """By the reference: how far the log-probability of each token, after the first, lies below the likeliest one's; and
    how far the tenth does on the average."""
    sampling = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=10)
    loop = plain_loop(model)
    loop.inbox.append(AddRequest(Request(request_id="r", prompt_token_ids=tokens, sampling=sampling)))
    found = []
    while loop.has_work:
        for update in loop.step():
            if isinstance(update, PromptScores):
                found += [one for _, one in update.scores]
    distances = [max(one.top_logprobs) - one.logprob for one in found]
    return np.array(distances), float(np.mean([max(one.top_logprobs) - min(one.top_logprobs) for one in found]))


@pytest.mark.slow
@pytest.mark.parametrize("quantization", ["int8", "int4"] if DEVICE == "cuda" else ["int4"])
@pytest.mark.parametrize("count", [1, 3] if DEVICE == "cuda" else [1])
def test_narrow_weights_choose_what_the_reference_nearly_chooses(quantization: str, count: int, tmp_path: Path) -> None:
    """One row is multiplied by the words themselves, several and prompts by the widened matrix."""
    model = make_family("llama", tmp_path)
    num_tokens = 8 if DEVICE == "cuda" else 3
    requests = some_requests(model.config.vocab_size, SamplingParams(temperature=0, max_tokens=num_tokens), count)
    found = answers(cuda_loop(model, quantization=quantization, warms_up=DEVICE == "cuda"), requests)
    for request in requests:
        answer = found[request.request_id, 0]
        distances, spread = distances_to_the_best(model, (*request.prompt_token_ids, *answer))
        assert len(answer) == num_tokens
        assert distances[-num_tokens:].mean() < (0.1 if quantization == "int8" else 0.5) * spread


@pytest.mark.slow
def test_what_the_device_draws_is_what_the_reference_draws(tmp_path: Path) -> None:
    model = make_family("qwen3", tmp_path)
    plain = SamplingParams(temperature=0.9, max_tokens=4, seed=4)
    filtered = SamplingParams(temperature=0.8, top_k=20, top_p=0.9, min_p=0.02, max_tokens=6, seed=5)
    for mixed in ([plain, plain], [plain, filtered, SamplingParams(temperature=0, max_tokens=5)]):
        requests = [
            msgspec.structs.replace(request, sampling=sampling)
            for request, sampling in zip(some_requests(model.config.vocab_size, plain, len(mixed)), mixed, strict=True)
        ]
        assert answers(cuda_loop(model), requests) == answers(plain_loop(model), requests)


@pytest.mark.slow
def test_what_typical_p_leaves_is_what_the_reference_leaves(tmp_path: Path) -> None:
    model = make_family("llama", tmp_path)
    sampling = SamplingParams(temperature=0.8, typical_p=0.9, max_tokens=6, n=2, repetition_penalty=1.3, seed=4)
    requests = some_requests(model.config.vocab_size, sampling, 3)
    assert answers(cuda_loop(model), requests) == answers(plain_loop(model), requests)


def told(loop: EngineLoop, requests: list[Request]) -> dict[tuple[str, int], list[tuple[int, TokenLogprob | None]]]:
    """Every token that was drawn, and what was told of it."""
    found: dict[tuple[str, int], list[tuple[int, TokenLogprob | None]]] = {}
    loop.inbox.extend(AddRequest(request) for request in requests)
    while loop.has_work:
        for update in loop.step():
            if isinstance(update, NewTokens):
                scores = update.logprobs or (None,) * len(update.token_ids)
                pairs = zip(update.token_ids, scores, strict=True)
                found.setdefault((update.request_id, update.sample_index), []).extend(pairs)
    loop.scheduler.check_integrity()
    return found


WISHES = {
    "penalties": SamplingParams(temperature=0.9, max_tokens=5, repetition_penalty=1.3, frequency_penalty=0.5, seed=6),
    "biases and a least length": SamplingParams(
        temperature=0, max_tokens=4, logit_bias={5: 3.0, 9: -2.0}, min_tokens=3
    ),
    "scores of samples": SamplingParams(temperature=1.1, max_tokens=4, top_p=0.9, n=2, logprobs=4, seed=7),
    "allowed": SamplingParams(temperature=1.3, max_tokens=4, allowed_token_ids=(3, 4, 5, 60), logprobs=0, seed=8),
    "typical": SamplingParams(temperature=0.9, max_tokens=3, typical_p=0.8, presence_penalty=1.0, logprobs=2),
    "greedy": SamplingParams(temperature=0, max_tokens=5),
}


@pytest.mark.slow
@pytest.mark.parametrize("names", [["penalties"], ["scores of samples", "greedy"], list(WISHES)], ids=str)
def test_wishes_beyond_a_draw_are_those_of_the_reference(names: list[str], tmp_path: Path) -> None:
    """More of them than rows: scores come back when a row has another tenant already."""
    model = make_family("qwen3", tmp_path)
    prompts = some_requests(model.config.vocab_size, WISHES["greedy"], 2 * len(names))
    requests = [
        msgspec.structs.replace(request, sampling=msgspec.structs.replace(WISHES[name], seed=index))
        for index, (request, name) in enumerate(zip(prompts, names + names[::-1], strict=True))
    ]
    found, expected = told(cuda_loop(model, 9 if len(names) > 2 else 40), requests), told(plain_loop(model), requests)
    assert found.keys() == expected.keys()
    for name, answer in expected.items():
        assert [token for token, _ in found[name]] == [token for token, _ in answer]
        for (token, own), (_, other) in zip(found[name], answer, strict=True):
            if own is None or other is None:
                assert own is other
                continue
            assert (own.token_id, own.rank, own.top_ids) == (token, other.rank, other.top_ids)
            np.testing.assert_allclose(own.logprob, other.logprob, rtol=0, atol=1e-4)
            np.testing.assert_allclose(own.top_logprobs, other.top_logprobs, rtol=0, atol=1e-4)


@pytest.mark.slow
def test_too_few_pages_push_rows_back_and_change_nothing(tmp_path: Path) -> None:
    model = make_family("qwen3", tmp_path)
    requests = some_requests(model.config.vocab_size, SamplingParams(temperature=0, max_tokens=30))
    loop = cuda_loop(model, num_pages=9)
    assert answers(loop, requests) == answers(plain_loop(model), requests)
    assert loop.scheduler.board.num_preemptions > 0


def without_memory_for(loop: EngineLoop, most: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """No step of more tokens than `most` has memory; the sizes of those that failed."""
    executor: Any = loop.executor
    failed = []

    def guard(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(batch: Any, *rest: Any) -> Any:
            if batch.num_tokens > most:
                failed.append(batch.num_tokens)
                raise torch.OutOfMemoryError("CUDA out of memory")
            return real(batch, *rest)

        return call

    monkeypatch.setattr(executor._prompt_graphs, "run", guard(executor._prompt_graphs.run))
    monkeypatch.setattr(executor._program, "decode", guard(executor._program.decode))
    return failed


@pytest.mark.slow
@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(temperature=0, max_tokens=4),
        SamplingParams(temperature=0.8, top_k=20, max_tokens=3, seed=4, repetition_penalty=1.3, prompt_logprobs=0),
    ],
    ids=["greedy", "drawn"],
)
def test_out_of_memory_halves_the_step_and_loses_nothing(
    sampling: SamplingParams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model = make_family("qwen3", tmp_path)
    requests = some_requests(model.config.vocab_size, sampling, 3)
    loop = cuda_loop(model)
    failed = without_memory_for(loop, 2, monkeypatch)
    assert answers(loop, requests) == answers(plain_loop(model), requests)
    assert max(failed) > 8 and min(failed) == 3, "prompts and decoding steps both failed"
    assert loop.executor.num_halved_steps == len(failed)
    assert "memory ran out in a step of" in caplog.text


@pytest.mark.slow
def test_no_memory_for_a_single_token_is_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_family("qwen3", tmp_path)
    loop = cuda_loop(model)
    without_memory_for(loop, 0, monkeypatch)
    with pytest.raises(EngineError, match="no memory for one token"):
        answers(loop, some_requests(model.config.vocab_size, SamplingParams(max_tokens=2), 1))


@pytest.mark.slow
def test_the_first_token_does_not_wait_for_the_step_after_it(tmp_path: Path) -> None:
    model = make_family("qwen3", tmp_path)
    loop = cuda_loop(model)
    [request] = some_requests(model.config.vocab_size, SamplingParams(temperature=0, max_tokens=3), 1)
    loop.inbox.append(AddRequest(msgspec.structs.replace(request, prompt_token_ids=(5, 6, 7))))
    assert any(isinstance(update, NewTokens) for update in loop.step())
    assert loop.executor.lateness == 1 and loop.executor.num_in_flight == 0
    assert not any(isinstance(update, NewTokens) for update in loop.step()), "from here on results come a step late"
    while loop.has_work:
        loop.step()


@pytest.mark.slow
def test_a_text_as_one_vector(tmp_path: Path) -> None:
    model = make_family("qwen3", tmp_path)
    requests = [
        msgspec.structs.replace(request, task="embed", pooling=pooling)
        for request, pooling in zip(
            some_requests(model.config.vocab_size, SamplingParams(max_tokens=1), 2), ("mean", "last"), strict=True
        )
    ]
    found, expected = (vectors(loop, requests) for loop in (cuda_loop(model), plain_loop(model)))
    assert found.keys() == expected.keys() == {"r0", "r1"}
    for name, vector in expected.items():
        np.testing.assert_allclose(found[name], vector, rtol=0, atol=1e-5)
