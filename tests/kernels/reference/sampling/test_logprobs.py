from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pagoda.kernels.reference.sampling.logprobs import token_logprobs


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 60), st.integers(0, 20))
def test_against_torch(seed: int, num_rows: int, vocab_size: int, num_top: int) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 4, (num_rows, vocab_size)).astype(np.float32)
    token_ids = rng.integers(0, vocab_size, num_rows)
    expected = torch.log_softmax(torch.from_numpy(logits).double(), dim=-1)
    got = token_logprobs(logits, token_ids, np.full(num_rows, num_top))
    num_listed = min(num_top, vocab_size)
    values, ids = expected.topk(num_listed)
    assert got.num_top.tolist() == [num_listed] * num_rows
    assert got.top_token_ids.tolist() == ids.tolist()
    np.testing.assert_allclose(got.top_values, values.numpy(), rtol=1e-6, atol=1e-6)
    chosen = expected[torch.arange(num_rows), torch.from_numpy(token_ids)]
    np.testing.assert_allclose(got.chosen, chosen.numpy(), rtol=1e-6, atol=1e-6)
    assert got.ranks.tolist() == ((expected > chosen[:, None]).sum(-1) + 1).tolist()


def test_rows_may_want_different_numbers() -> None:
    logits = np.array([[0, 1, 2], [2, 1, 0], [0, 0, 0]], dtype=np.float32)
    got = token_logprobs(logits, np.array([1, 2]), np.array([2, 0]), rows=np.array([1, 2]))
    assert got.rows.tolist() == [1, 2]
    assert got.top_token_ids.tolist() == [[0, 1], [-1, -1]]
    assert np.isneginf(got.top_values[1]).all()
    assert got.chosen[1] == pytest.approx(-np.log(3))


def test_equal_values_rank_by_id() -> None:
    logits = np.zeros((4, 4), dtype=np.float32)
    got = token_logprobs(logits, np.arange(4), np.full(4, 3))
    assert got.ranks.tolist() == [1, 2, 3, 4]
    assert got.top_token_ids.tolist() == [[0, 1, 2]] * 4


def test_no_rows() -> None:
    got = token_logprobs(np.zeros((0, 5), dtype=np.float32), np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int32))
    assert got.top_token_ids.shape == (0, 0)
