from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import TemperatureLogitsWarper

from pagoda.kernels.reference.sampling.temperature import at_temperature


@pytest.mark.parametrize("temperature", [0.01, 0.5, 1.0, 2.5, 100.0])
def test_against_transformers(temperature: float) -> None:
    logits = np.random.default_rng(0).normal(0, 5, 1000).astype(np.float32)
    expected = TemperatureLogitsWarper(temperature)(None, torch.from_numpy(logits.astype(np.float64))[None])
    pool = at_temperature(logits, temperature)
    assert pool.token_ids.tolist() == list(range(1000))
    np.testing.assert_allclose(pool.logits, expected[0].numpy(), rtol=1e-12)


def test_tokens_that_are_ruled_out_are_no_candidates() -> None:
    pool = at_temperature(np.array([1, -np.inf, 3, -np.inf], dtype=np.float32), 0.5)
    assert pool.token_ids.tolist() == [0, 2] and pool.logits.tolist() == [2.0, 6.0]


@pytest.mark.parametrize("value", [-np.inf, np.nan])
def test_a_row_with_nothing_left_still_has_an_answer(value: float) -> None:
    assert len(at_temperature(np.full(4, value, dtype=np.float32), 1.0)) == 1
