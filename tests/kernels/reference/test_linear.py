from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pagoda.kernels.reference import ReferenceOperators
from tests.kernels.reference.dense_weight import DenseWeight

SIZES = st.integers(1, 70)


@given(num_tokens=SIZES, num_inputs=SIZES, num_outputs=SIZES, has_bias=st.booleans(), seed=st.integers(0, 2**32 - 1))
def test_linear_agrees_with_torch(num_tokens, num_inputs, num_outputs, has_bias, seed):
    generator = np.random.default_rng(seed)
    x = generator.standard_normal((num_tokens, num_inputs), np.float32)
    matrix = generator.standard_normal((num_outputs, num_inputs), np.float32)
    bias = generator.standard_normal(num_outputs, np.float32) if has_bias else None
    wide = torch.nn.functional.linear(
        torch.tensor(x).double(),
        torch.tensor(matrix).double(),
        None if bias is None else torch.tensor(bias).double(),
    ).numpy()
    weights = DenseWeight(matrix), None if bias is None else DenseWeight(bias)

    exact = ReferenceOperators(np.float64).linear(x, *weights)
    quick = ReferenceOperators(np.float32).linear(x, *weights)

    assert exact.dtype == quick.dtype == np.float32
    assert exact.flags.c_contiguous and quick.flags.c_contiguous
    # Rounded once: at most half a unit in the last place, and the sums of float64 are worth a whole one.
    np.testing.assert_array_max_ulp(exact, wide.astype(np.float32), maxulp=1)
    np.testing.assert_allclose(quick, wide, atol=1e-4)


def test_embed_takes_rows_before_and_after_the_head_has_decoded_the_matrix():
    operators = ReferenceOperators()
    matrix = np.random.default_rng(1).standard_normal((11, 5), np.float32)
    weight = DenseWeight(matrix)
    token_ids = np.array([3, 10, 3, 0], np.int32)
    expected = torch.nn.functional.embedding(torch.tensor(token_ids), torch.tensor(matrix)).numpy()

    np.testing.assert_array_equal(operators.embed(weight, token_ids), expected)
    assert weight.num_decoded == 0
    operators.linear(np.ones((1, 5), np.float32), weight)
    np.testing.assert_array_equal(operators.embed(weight, token_ids), expected)
    assert weight.num_decoded == 1


def test_take_rows():
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    np.testing.assert_array_equal(ReferenceOperators().take_rows(x, np.array([3, 0])), torch.tensor(x)[[3, 0]].numpy())


@pytest.mark.parametrize("accumulate", [np.float32, np.float64])
def test_add_and_scale_stay_float32(accumulate):
    operators = ReferenceOperators(accumulate)
    x = np.array([[1.0, 2.0]], np.float32)
    assert operators.add(x, x).dtype == operators.scale(x, 0.1).dtype == np.float32
    np.testing.assert_array_equal(operators.add(x, x), [[2.0, 4.0]])
    np.testing.assert_array_equal(operators.scale(x, 0.1), (torch.tensor(x) * 0.1).numpy())
