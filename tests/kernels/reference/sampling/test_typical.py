from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import TypicalLogitsWarper

from pagoda.kernels.reference.sampling.candidates import Candidates
from pagoda.kernels.reference.sampling.typical import keep_typical


def pool_of(logits: np.ndarray) -> Candidates:
    return Candidates(np.arange(len(logits)), logits.astype(np.float64))


@given(st.integers(0, 2**32 - 1), st.integers(2, 300), st.floats(0.01, 0.99), st.floats(0.1, 5))
def test_against_transformers(seed: int, size: int, typical_p: float, spread: float) -> None:
    logits = np.random.default_rng(seed).normal(0, spread, size)
    expected = torch.isfinite(TypicalLogitsWarper(typical_p)(None, torch.from_numpy(logits)[None]))[0]
    assert keep_typical(pool_of(logits), typical_p).token_ids.tolist() == torch.nonzero(expected).flatten().tolist()


def test_the_likeliest_may_fall_out() -> None:
    """0.4 and 24 x 0.025: the entropy is 2.58 nats, the surprises 0.92 and 3.69, so the small ones are nearer."""
    logits = np.log(np.array([0.4] + [0.025] * 24))
    assert keep_typical(pool_of(logits), 0.5).token_ids.tolist() == list(range(1, 21))


def test_one_is_off_and_a_lone_token_stays() -> None:
    assert len(keep_typical(pool_of(np.array([0.0, -1000.0])), 1.0)) == 2
    assert len(keep_typical(pool_of(np.array([3.0])), 0.2)) == 1
    assert keep_typical(pool_of(np.array([0.0, -1000.0])), 0.9).token_ids.tolist() == [0]
