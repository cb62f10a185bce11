from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pagoda.kernels.reference import ReferenceOperators

ARRAYS = hnp.arrays(np.float32, (3, 7), elements=st.floats(-200, 200, width=32))
PRECISIONS = [(np.float64, 1e-6), (np.float32, 2e-6)]


@pytest.mark.parametrize(("accumulate", "tolerance"), PRECISIONS)
@given(gate=ARRAYS, up=ARRAYS)
def test_gated_silu_agrees_with_torch(accumulate, tolerance, gate, up):
    expected = torch.nn.functional.silu(torch.tensor(gate).double()) * torch.tensor(up).double()
    actual = ReferenceOperators(accumulate).gated_silu(gate, up)
    assert actual.dtype == np.float32
    np.testing.assert_allclose(actual, expected.numpy(), rtol=tolerance, atol=1e-30)


@pytest.mark.parametrize(("accumulate", "tolerance"), PRECISIONS)
@given(gate=ARRAYS, up=ARRAYS)
def test_gated_gelu_agrees_with_torch(accumulate, tolerance, gate, up):
    wide = torch.nn.functional.gelu(torch.tensor(gate).double(), approximate="tanh")
    actual = ReferenceOperators(accumulate).gated_gelu(gate, up)
    assert actual.dtype == np.float32
    # 1 + tanh cancels for negative gates, so the error is absolute in the gate and carried by `up`.
    allowed = tolerance * (np.abs(gate.astype(np.float64)) * np.abs(up) + np.abs(wide.numpy() * up)) + 1e-30
    assert (np.abs(actual - wide.numpy() * up) <= allowed).all()


@given(x=ARRAYS, cap=st.floats(1.0, 100.0))
def test_soft_cap_agrees_with_torch(x, cap):
    expected = cap * torch.tanh(torch.tensor(x).double() / cap)
    np.testing.assert_allclose(ReferenceOperators().soft_cap(x, cap), expected.numpy(), rtol=2e-6, atol=1e-30)


def test_an_extreme_gate_closes_without_a_warning():
    closed = ReferenceOperators().gated_silu(np.array([[-1e4]], np.float32), np.array([[3.0]], np.float32))
    assert closed[0, 0] == 0.0
