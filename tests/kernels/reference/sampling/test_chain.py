from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

from pagoda.core.sampling_params import SamplingParams
from pagoda.decoding import SamplingState
from pagoda.kernels.reference.sampling import sample
from pagoda.kernels.sampling import Draws, SamplingBatch

VOCAB_SIZE = 40


def chi_square_limit(freedom: int) -> float:
    """The value that chance exceeds once in a million (Wilson and Hilferty)."""
    return freedom * (1 - 2 / (9 * freedom) + 4.75 * (2 / (9 * freedom)) ** 0.5) ** 3


def repeated_draws(num_draws: int, **filters: Any) -> Draws:
    columns = {name: np.full(num_draws, value) for name, value in filters.items()}
    columns.setdefault("temperature", np.ones(num_draws))
    return Draws(
        seeds=np.arange(num_draws, dtype=np.uint64),
        sample_indices=np.zeros(num_draws, dtype=np.int32),
        positions=np.full(num_draws, 11, dtype=np.int32),
        **columns,
    )


@pytest.mark.parametrize(
    "filters",
    [
        {},
        {"temperature": 0.5},
        {"temperature": 3.0},
        {"top_k": 5},
        {"top_p": 0.8},
        {"min_p": 0.1},
        {"typical_p": 0.6},
        {"temperature": 1.7, "min_p": 0.02, "top_k": 20, "typical_p": 0.9, "top_p": 0.9},
    ],
)
def test_drawn_tokens_follow_the_filtered_softmax(filters: dict[str, Any]) -> None:
    num_draws = 4000
    logits = np.random.default_rng(1).normal(0, 2, VOCAB_SIZE).astype(np.float32)
    warpers = {
        "temperature": TemperatureLogitsWarper,
        "min_p": MinPLogitsWarper,
        "top_k": TopKLogitsWarper,
        "typical_p": TypicalLogitsWarper,
        "top_p": TopPLogitsWarper,
    }
    chain = LogitsProcessorList([warper(filters[name]) for name, warper in warpers.items() if name in filters])
    expected = torch.softmax(chain(None, torch.from_numpy(logits).double()[None]), dim=-1)[0].numpy()
    rows = np.broadcast_to(logits, (num_draws, VOCAB_SIZE))
    got = sample(rows, SamplingBatch(num_draws, draws=repeated_draws(num_draws, **filters))).token_ids
    counts = np.bincount(got, minlength=VOCAB_SIZE)
    assert not counts[expected == 0].any()
    live = expected > 0
    frequent = live & (expected * num_draws >= 5)
    observed = np.append(counts[frequent], counts[live & ~frequent].sum())
    wanted = np.append(expected[frequent], expected[live & ~frequent].sum()) * num_draws
    observed, wanted = observed[wanted > 0], wanted[wanted > 0]
    assert ((observed - wanted) ** 2 / wanted).sum() < chi_square_limit(max(len(wanted) - 1, 1))


def test_positions_and_samples_draw_anew() -> None:
    num_draws = 2000
    logits = np.zeros((num_draws, 16), dtype=np.float32)
    numbers = np.arange(num_draws, dtype=np.int32)
    same = np.zeros(num_draws, dtype=np.int32)
    for sample_indices, positions in ((numbers, same), (same, numbers)):
        draws = Draws(
            temperature=np.ones(num_draws, dtype=np.float32),
            seeds=np.full(num_draws, 42, dtype=np.uint64),
            sample_indices=sample_indices,
            positions=positions,
        )
        got = sample(logits, SamplingBatch(num_draws, draws=draws)).token_ids
        pairs = np.bincount(got[:-1] * 16 + got[1:], minlength=256)
        wanted = (num_draws - 1) / 256
        assert ((pairs - wanted) ** 2 / wanted).sum() < chi_square_limit(255)


token = st.integers(0, VOCAB_SIZE - 1)
some_params = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.3, 1.0, 2.0]),
    top_k=st.sampled_from([0, 1, 3, 30]),
    top_p=st.sampled_from([1.0, 0.9, 0.4]),
    min_p=st.sampled_from([0.0, 0.05]),
    typical_p=st.sampled_from([1.0, 0.7]),
    repetition_penalty=st.sampled_from([1.0, 1.3]),
    presence_penalty=st.sampled_from([0.0, 0.7]),
    frequency_penalty=st.sampled_from([0.0, -0.4]),
    min_tokens=st.integers(0, 4),
    logprobs=st.none() | st.integers(0, 5),
    logit_bias=st.none() | st.dictionaries(token, st.floats(-5, 5), max_size=4),
    banned_token_ids=st.lists(token, max_size=3),
    allowed_token_ids=st.none() | st.lists(token, min_size=4, max_size=20, unique=True),
    stop_token_ids=st.lists(token, max_size=2),
)
sequences = st.tuples(some_params, st.lists(token, min_size=1, max_size=10), st.lists(token, max_size=10))


def answer_rows(requests: list[Any], order: list[int], logits: np.ndarray) -> dict[int, tuple[Any, ...]]:
    """Sample the requests in one step, laid out in the given order; each answer by the number of its request."""
    state = SamplingState(len(requests), eos_token_ids=(0,))
    for row, number in enumerate(order):
        params, prompt, output = requests[number]
        state.add(row, params, 1000 + number, number % 3, prompt, output)
    positions = np.array([len(requests[number][1]) + len(requests[number][2]) for number in order])
    result = sample(logits[order], state.batch(np.arange(len(order)), positions))
    answers: dict[int, tuple[Any, ...]] = {number: (int(result.token_ids[row]),) for row, number in enumerate(order)}
    if result.logprobs is not None:
        scores = result.logprobs
        for index, row in enumerate(scores.rows):
            top = scores.top_token_ids[index, : scores.num_top[index]].tolist()
            answers[order[row]] += (float(scores.chosen[index]), int(scores.ranks[index]), top)
    return answers


@settings(max_examples=60, deadline=None)
@given(st.lists(sequences, min_size=1, max_size=8), st.randoms(use_true_random=False), st.integers(0, 2**32 - 1))
def test_a_row_does_not_see_its_neighbours(requests: list[Any], random: Any, seed: int) -> None:
    logits = np.random.default_rng(seed).normal(0, 3, (len(requests), VOCAB_SIZE)).astype(np.float32)
    numbers = list(range(len(requests)))
    alone = {number: answer_rows(requests, [number], logits)[number] for number in numbers}
    assert answer_rows(requests, numbers, logits) == alone
    shuffled = random.sample(numbers, len(numbers))
    assert answer_rows(requests, shuffled, logits) == alone
    part = shuffled[: (len(numbers) + 1) // 2]
    assert answer_rows(requests, part, logits) == {number: alone[number] for number in part}


@settings(deadline=None)
@given(sequences, st.integers(0, 2**32 - 1))
def test_the_rules_hold(request_: Any, seed: int) -> None:
    params, prompt, output = request_
    logits = np.random.default_rng(seed).normal(0, 3, (1, VOCAB_SIZE)).astype(np.float32)
    token_id = answer_rows([request_], [0], logits)[0][0]
    allowed = set(range(VOCAB_SIZE) if params.allowed_token_ids is None else params.allowed_token_ids)
    allowed -= set(params.banned_token_ids)
    assert token_id in allowed
    stops = {0, *params.stop_token_ids}
    if len(output) < params.min_tokens and allowed - stops:
        assert token_id not in stops


def test_logits_are_not_changed_and_logprobs_are_the_models_own() -> None:
    logits = np.random.default_rng(0).normal(0, 3, (1, VOCAB_SIZE)).astype(np.float32)
    before = logits.copy()
    params = SamplingParams(
        temperature=0.5, logprobs=3, repetition_penalty=2.0, logit_bias={1: 50.0}, banned_token_ids=(2,)
    )
    state = SamplingState(1)
    state.add(0, params, seed=1, prompt_token_ids=[1, 2, 3])
    result = sample(logits, state.batch(np.array([0]), np.array([3])))
    assert np.array_equal(logits, before)
    assert result.token_ids.tolist() == [1]
    assert result.logprobs is not None
    expected = torch.log_softmax(torch.from_numpy(logits[0]).double(), dim=-1)
    assert result.logprobs.chosen[0] == pytest.approx(float(expected[1]), rel=1e-6)
    assert result.logprobs.top_token_ids[0].tolist() == expected.topk(3).indices.tolist()


def test_a_greedy_step_is_an_argmax() -> None:
    logits = np.random.default_rng(0).normal(0, 3, (5, VOCAB_SIZE)).astype(np.float32)
    result = sample(logits, SamplingBatch(5))
    assert result.token_ids.tolist() == logits.argmax(-1).tolist()
    assert result.token_ids.dtype == np.int32 and result.logprobs is None


def test_an_empty_step() -> None:
    assert len(sample(np.zeros((0, 8), dtype=np.float32), SamplingBatch(0)).token_ids) == 0


def test_rows_that_do_not_match_are_a_bug() -> None:
    with pytest.raises(ValueError, match="2 rows of logits for a batch of 3"):
        sample(np.zeros((2, 8), dtype=np.float32), SamplingBatch(3))
