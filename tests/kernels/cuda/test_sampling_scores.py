"""Log-probabilities and ranks, against the reference."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pagoda.kernels.cuda import sampling_scores
from pagoda.kernels.cuda.sampling_rules import NUM_SCORES
from pagoda.kernels.cuda.sampling_scores import SCORES_WIDTH, score_scratch, score_tokens
from pagoda.kernels.reference.sampling import token_logprobs
from tests.kernels.cuda.device import DEVICE, DTYPES, on_device, rounded, to_numpy
from tests.kernels.cuda.records import Rules, records_of

UNTOUCHED = -7


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling_scores, "CHUNK", 256)


def run(
    logits: np.ndarray, token_ids: list[int], num_best: list[int | None], dtype: torch.dtype = torch.float32
) -> np.ndarray:
    """Logits i belong to row count - 1 - i of the worker; scores as they come, in int32."""
    count, vocab_size = logits.shape
    scores = torch.full((count, SCORES_WIDTH), UNTOUCHED, dtype=torch.int32, device=DEVICE)
    records = records_of([Rules(num_best=one) for one in reversed(num_best)], vocab_size)
    rows = np.arange(count, dtype=np.int32)[::-1].copy()
    score_tokens(
        scores,
        on_device(logits, dtype),
        on_device(np.array(token_ids, np.int32)),
        on_device(rows),
        on_device(records)[:, NUM_SCORES.value],
        score_scratch(count, vocab_size, DEVICE),
    )
    return to_numpy(scores)


def check(logits: np.ndarray, token_ids: list[int], num_best: list[int | None], dtype: torch.dtype) -> None:
    found = run(logits, token_ids, num_best, dtype)
    asked = np.array([entry for entry, one in enumerate(num_best) if one is not None])
    counts = np.array([num_best[entry] for entry in asked])
    expected = token_logprobs(logits, np.array(token_ids)[asked], counts, asked)
    for index, entry in enumerate(asked.tolist()):
        own, count = found[entry], int(counts[index])
        reals = own.view(np.float32)
        # Sums in float64 of another order, rounded to float32.
        np.testing.assert_allclose(reals[0], expected.chosen[index], rtol=2e-7)
        assert own[1] == expected.ranks[index]
        np.testing.assert_array_equal(own[2 : 2 + count], expected.top_token_ids[index, :count])
        np.testing.assert_allclose(reals[22 : 22 + count], expected.top_values[index, :count], rtol=2e-7)
        assert (own[2 + count : 22] == UNTOUCHED).all() and (own[22 + count :] == UNTOUCHED).all()
    assert (np.delete(found, asked, 0) == UNTOUCHED).all(), "rows that want none are left alone"


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("vocab_size", [30, 256, 700])
def test_scores_and_ranks(kind: str, vocab_size: int) -> None:
    generator = np.random.default_rng(vocab_size)
    logits = rounded(generator.normal(0, 3, (5, vocab_size)).astype(np.float32), DTYPES[kind])
    token_ids = [int(logits[0].argmax()), 0, vocab_size - 1, 7, int(logits[4].argmin())]
    check(logits, token_ids, [5, 20, None, 0, 1], DTYPES[kind])


def test_equal_logits_rank_by_their_ids() -> None:
    logits = np.round(np.random.default_rng(1).normal(0, 1, (2, 600))).astype(np.float32)
    logits[1] = np.where(np.arange(600) % 2, 0.0, -0.0)  # two zeros are one
    check(logits, [300, 599], [20, 20], torch.float32)


def test_tokens_that_the_model_rules_out() -> None:
    logits = np.full((2, 600), -np.inf, np.float32)
    logits[0, [3, 500]] = 1.0, 2.0
    logits[1, :3] = 0.5
    check(logits, [500, 2], [2, 3], torch.float32)


def test_logits_far_apart() -> None:
    logits = np.array([[-1e4, 80.0, 3e38, -3e38] * 70, [-200.0] * 280], np.float32)
    check(logits, [1, 9], [3, 3], torch.float32)


def test_a_broken_row_does_not_break_its_neighbours() -> None:
    logits = np.random.default_rng(2).normal(0, 1, (3, 600)).astype(np.float32)
    whole = run(logits, [4, 5, 6], [3, 3, 3])
    logits[1, 8] = np.nan
    found = run(logits, [4, 2**31 - 1, 6], [3, 3, 3])
    np.testing.assert_array_equal(found[[0, 2]], whole[[0, 2]])
