from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import MinPLogitsWarper

from pagoda.kernels.reference.sampling.candidates import Candidates
from pagoda.kernels.reference.sampling.min_p import keep_min_p


def pool_of(logits: np.ndarray) -> Candidates:
    return Candidates(np.arange(len(logits)), logits.astype(np.float64))


@given(st.integers(0, 2**32 - 1), st.integers(1, 300), st.floats(1e-6, 0.999))
def test_against_transformers(seed: int, size: int, min_p: float) -> None:
    logits = np.random.default_rng(seed).normal(0, 3, size)
    expected = torch.isfinite(MinPLogitsWarper(min_p)(None, torch.from_numpy(logits)[None]))[0]
    assert keep_min_p(pool_of(logits), min_p).token_ids.tolist() == torch.nonzero(expected).flatten().tolist()


def test_zero_is_off_and_one_keeps_the_best() -> None:
    pool = pool_of(np.array([0.0, 2.0, 2.0, -50.0]))
    assert len(keep_min_p(pool, 0.0)) == 4
    assert keep_min_p(pool, 1.0).token_ids.tolist() == [1, 2]
