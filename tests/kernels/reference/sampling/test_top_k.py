from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import TopKLogitsWarper

from pagoda.kernels.reference.sampling.candidates import Candidates
from pagoda.kernels.reference.sampling.top_k import keep_top_k


def pool_of(logits: np.ndarray) -> Candidates:
    return Candidates(np.arange(len(logits)), logits.astype(np.float64))


@given(st.integers(0, 2**32 - 1), st.integers(1, 300), st.integers(1, 310))
def test_against_transformers(seed: int, size: int, top_k: int) -> None:
    logits = np.random.default_rng(seed).normal(0, 3, size)
    expected = torch.isfinite(TopKLogitsWarper(top_k)(None, torch.from_numpy(logits)[None]))[0]
    kept = keep_top_k(pool_of(logits), top_k)
    assert sorted(kept.token_ids.tolist()) == torch.nonzero(expected).flatten().tolist()


def test_zero_is_off() -> None:
    assert len(keep_top_k(pool_of(np.zeros(9)), 0)) == 9


def test_of_equal_logits_the_lower_ids_stay() -> None:
    assert keep_top_k(pool_of(np.array([1, 2, 1, 2, 1])), 3).token_ids.tolist() == [1, 3, 0]
