from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import TopPLogitsWarper

from pagoda.kernels.reference.sampling.candidates import Candidates
from pagoda.kernels.reference.sampling.top_p import FIRST_RANKED, keep_top_p


def pool_of(logits: np.ndarray) -> Candidates:
    return Candidates(np.arange(len(logits)), logits.astype(np.float64))


@given(st.integers(0, 2**32 - 1), st.integers(1, 8 * FIRST_RANKED + 9), st.floats(1e-4, 0.9999), st.floats(0.01, 5))
def test_against_transformers(seed: int, size: int, top_p: float, spread: float) -> None:
    logits = np.random.default_rng(seed).normal(0, spread, size)
    expected = torch.isfinite(TopPLogitsWarper(top_p)(None, torch.from_numpy(logits)[None]))[0]
    kept = keep_top_p(pool_of(logits), top_p)
    assert sorted(kept.token_ids.tolist()) == torch.nonzero(expected).flatten().tolist()


@given(st.lists(st.integers(0, 60), min_size=1, max_size=12).filter(any), st.integers(1, 100))
def test_smallest_set_that_reaches_the_mass(weights: list[int], percent: int) -> None:
    """Whole numbers, so that the border itself is hit; half a unit of slack is far from any rounding."""
    with np.errstate(divide="ignore"):
        logits = np.log(np.array(weights, dtype=np.float64))
    kept = keep_top_p(pool_of(logits), percent / 100 - 1e-9)
    order = sorted(range(len(weights)), key=lambda index: (-weights[index], index))
    masses = np.cumsum([weights[index] for index in order])
    reached = int(np.argmax(masses * 100 >= percent * sum(weights)))
    assert kept.token_ids.tolist() == order[: reached + 1]


def test_the_best_always_stays() -> None:
    assert keep_top_p(pool_of(np.array([0.0, 9.0, 9.0])), 1e-30).token_ids.tolist() == [1]


def test_one_is_off() -> None:
    assert len(keep_top_p(pool_of(np.array([0.0, -1000.0])), 1.0)) == 2


def test_even_logits_need_the_whole_vocabulary() -> None:
    size = 8 * FIRST_RANKED + 100
    assert keep_top_p(pool_of(np.zeros(size)), 0.999999).token_ids.tolist() == list(range(size))
