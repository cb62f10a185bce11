"""The native sampler against its NumPy twin: the same tokens and the same log-probabilities, bit for bit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagoda.core.sampling_params import SamplingParams
from pagoda.decoding import SamplingState
from pagoda.kernels.cpu import sampling as native_sampling
from pagoda.kernels.cpu.library import available_instruction_sets
from pagoda.kernels.cpu.sampling import NativeSampler, rows_of
from pagoda.kernels.reference import sampling as twin
from pagoda.kernels.sampling import Draws, SamplingBatch, TokenCells

SETS = available_instruction_sets()
SAMPLERS = [NativeSampler(threads, name) for threads in (1, 3) for name in SETS]
pytestmark = pytest.mark.skipif(not SETS, reason="the native kernels were not built")


def assert_same(logits: np.ndarray, batch: SamplingBatch) -> None:
    before = logits.copy()
    expected = twin.sample(logits, batch)
    for sampler in SAMPLERS:
        actual = sampler.sample(logits, batch)
        assert actual.token_ids.dtype == np.int32
        assert actual.token_ids.tolist() == expected.token_ids.tolist()
        assert (actual.is_broken is None) == (expected.is_broken is None)
        if expected.is_broken is not None:
            assert actual.is_broken.tolist() == expected.is_broken.tolist()
        assert (actual.logprobs is None) == (expected.logprobs is None)
        if expected.logprobs is not None:
            for name in ("rows", "chosen", "ranks", "num_top", "top_token_ids", "top_values"):
                np.testing.assert_array_equal(getattr(actual.logprobs, name), getattr(expected.logprobs, name))
    np.testing.assert_array_equal(logits, before)


def random_params(rng: np.random.Generator, vocab_size: int) -> SamplingParams:
    def some(value: Any, other: Any, chance: float = 0.4) -> Any:
        return value if rng.random() < chance else other

    token_ids = [int(token) for token in rng.permutation(vocab_size)[:6]]
    return SamplingParams(
        temperature=some(0.0, float(rng.choice([0.01, 0.3, 0.8, 1.0, 2.0, 30.0])), 0.2),
        top_k=some(int(rng.integers(1, 2 * vocab_size)), 0),
        top_p=some(float(rng.choice([1e-6, 0.1, 0.5, 0.9, 0.99, 0.999999])), 1.0),
        min_p=some(float(rng.choice([1e-9, 0.01, 0.1, 0.9, 1.0])), 0.0, 0.3),
        typical_p=some(0.7, 1.0, 0.1),
        repetition_penalty=some(1.3, 1.0, 0.3),
        presence_penalty=some(0.7, 0.0, 0.3),
        frequency_penalty=some(-0.4, 0.0, 0.3),
        logit_bias=some({token: float(rng.normal(0, 5)) for token in token_ids[:3]}, None, 0.3),
        allowed_token_ids=some(token_ids[:4], None, 0.15),
        banned_token_ids=some(tuple(token_ids[2:5]), (), 0.2),
        logprobs=some(int(rng.integers(0, min(12, vocab_size))), None, 0.3),
    )


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 5, 63, 64, 65, 200, 1000, 4099]), st.integers(1, 7))
def test_any_batch_of_any_requests_gives_the_twins_tokens(seed: int, vocab_size: int, num_rows: int):
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, rng.choice([0.1, 1.0, 4.0, 30.0]), (num_rows, vocab_size)).astype(np.float32)
    if rng.random() < 0.5:
        logits = np.round(logits * 2) / 2  # many ties
    state = SamplingState(num_rows)
    for row in range(num_rows):
        history = [int(token) for token in rng.integers(0, vocab_size, 20)]
        state.add(row, random_params(rng, vocab_size), int(rng.integers(2**63)), row % 3, history[:8], history[8:])
    assert_same(logits, state.batch(np.arange(num_rows), rng.integers(0, 5000, num_rows)))


def drawn(num_rows: int, **filters: Any) -> SamplingBatch:
    draws = Draws(
        temperature=np.full(num_rows, filters.pop("temperature", 1.0), np.float32),
        seeds=np.arange(num_rows, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15),
        sample_indices=np.arange(num_rows, dtype=np.int32) % 3,
        positions=np.arange(num_rows, dtype=np.int32),
        **{
            name: np.full(num_rows, value, np.int32 if name == "top_k" else np.float32)
            for name, value in filters.items()
        },
    )
    return SamplingBatch(num_rows, draws=draws)


@pytest.mark.parametrize("spread", [0.5, 3.0])
@pytest.mark.parametrize(
    "filters",
    [{}, {"temperature": 1e-4}, {"top_k": 50}, {"top_p": 0.95}, {"min_p": 0.05}, {"top_k": 900, "top_p": 0.9}],
)
def test_a_whole_vocabulary(filters: dict[str, float], spread: float):
    logits = np.random.default_rng(7).normal(0, spread, (6, 49_157)).astype(np.float32)
    logits[:, 123] += 6
    assert_same(logits, drawn(6, **filters))


def test_ties_go_to_the_lowest_id_also_between_the_two_zeros():
    logits = np.full((3, 130), -1.0, np.float32)
    logits[0, [9, 70]] = 2.0
    logits[1, 64], logits[1, 80] = -0.0, 0.0
    logits[2] = -0.0
    sampled = SAMPLERS[0].sample(logits, SamplingBatch(3))
    assert sampled.token_ids.tolist() == [9, 64, 0]
    assert_same(logits, SamplingBatch(3, num_logprobs=np.array([3, 130, 2], np.int32)))


@pytest.fixture
def left_to_the_twin(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows the native sampler did not decide, call by call."""
    counts: list[int] = []

    def counting(logits: np.ndarray, batch: SamplingBatch) -> Any:
        counts.append(len(logits))
        return twin.sample(logits, batch)

    class Watched:
        sample = staticmethod(counting)
        token_logprobs = staticmethod(twin.token_logprobs)

    monkeypatch.setattr(native_sampling, "twin", Watched)
    return counts


def test_a_border_that_rounding_decides_is_left_to_the_twin(left_to_the_twin: list[int]):
    """Four equal tokens: two of them are exactly half of the mass."""
    assert_same(np.zeros((2, 4), np.float32), drawn(2, top_p=0.5))
    assert left_to_the_twin == [2] * len(SAMPLERS)


def test_chance_leaves_nothing_to_the_twin(left_to_the_twin: list[int]):
    logits = np.random.default_rng(1).normal(0, 3, (200, 3000)).astype(np.float32)
    for filters in ({}, {"top_p": 0.9}, {"top_k": 40, "top_p": 0.9}, {"min_p": 0.02}):
        SAMPLERS[0].sample(logits, drawn(200, **filters))
    assert left_to_the_twin == []


def test_broken_rows_are_named_and_the_others_are_not_hurt():
    logits = np.random.default_rng(2).normal(0, 1, (6, 100)).astype(np.float32)
    logits[1, 99], logits[2, 0], logits[4, 50] = np.nan, np.inf, -np.inf
    for batch in (SamplingBatch(6), drawn(6)):
        with np.errstate(invalid="ignore"):
            assert_same(logits, batch)
    assert SAMPLERS[0].sample(logits, SamplingBatch(6)).is_broken.tolist() == [False, True, True, False, True, False]


def test_a_row_with_nothing_left_answers_its_argmax():
    banned = TokenCells(np.repeat(np.array([0, 1], np.int32), 5), np.tile(np.arange(5, dtype=np.int32), 2))
    logits = np.ones((2, 5), np.float32)
    assert_same(logits, SamplingBatch(2, banned=banned))
    assert_same(logits, SamplingBatch(2, banned=banned, draws=drawn(2).draws))


def test_a_cell_outside_the_vocabulary_is_refused():
    cells = TokenCells(np.array([0], np.int32), np.array([5], np.int32))
    with pytest.raises(IndexError):
        SAMPLERS[0].sample(np.zeros((1, 5), np.float32), SamplingBatch(1, banned=cells))
    with pytest.raises(ValueError, match="rows of logits"):
        SAMPLERS[0].sample(np.zeros((1, 5), np.float32), SamplingBatch(2))


def test_rows_may_lie_apart_and_be_of_another_type():
    logits = np.random.default_rng(3).normal(0, 2, (8, 112)).astype(np.float32)
    for seen in (logits[:, :97], logits[::2], logits[:, ::2], logits.astype(np.float64)):
        assert_same(seen, drawn(len(seen), top_p=0.8))


def test_scores_without_rows_and_for_chosen_rows():
    logits = np.random.default_rng(4).normal(0, 5, (5, 300)).astype(np.float32)
    sampler = SAMPLERS[0]
    for rows in (None, np.array([4, 4, 0])):
        count = 5 if rows is None else 3
        token_ids, num_top = np.arange(count) * 7, np.array([0, 300, 5, 400, 1])[:count]
        expected = twin.token_logprobs(logits, token_ids, num_top, rows)
        actual = sampler.token_logprobs(logits, token_ids, num_top, rows)
        for name in ("rows", "chosen", "ranks", "num_top", "top_token_ids", "top_values"):
            np.testing.assert_array_equal(getattr(actual, name), getattr(expected, name))
    with pytest.raises(IndexError):
        sampler.token_logprobs(logits, np.array([1]), np.array([0]), np.array([5]))


def test_part_of_a_batch_draws_what_the_whole_does():
    rng = np.random.default_rng(5)
    logits = rng.normal(0, 3, (6, 50)).astype(np.float32)
    state = SamplingState(6)
    for row in range(6):
        state.add(row, random_params(rng, 50), row, 0, [1, 2, 3], [3, 4])
    batch = state.batch(np.arange(6), np.arange(6))
    part = np.array([1, 3, 4])
    whole = twin.sample(logits, batch).token_ids
    assert twin.sample(logits[part], rows_of(batch, part)).token_ids.tolist() == whole[part].tolist()


def test_an_unfiltered_draw_follows_the_softmax():
    """Statistics as the oracle: 4,000 draws of five tokens."""
    values = np.array([0.0, 1.0, -1.0, 2.0, 0.5], np.float32)
    batch = drawn(4000)
    counts = np.bincount(SAMPLERS[0].sample(np.tile(values, (4000, 1)), batch).token_ids, minlength=5)
    expected = np.exp(values.astype(float)) / np.exp(values.astype(float)).sum() * 4000
    assert ((counts - expected) ** 2 / expected).sum() < 4 + 5 * math.sqrt(8)
