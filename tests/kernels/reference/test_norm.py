from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from pagoda.kernels.reference import ReferenceOperators
from tests.kernels.reference.dense_weight import DenseWeight


@given(
    leading=st.lists(st.integers(1, 5), min_size=1, max_size=2),
    width=st.integers(1, 90),
    magnitude=st.sampled_from([1e-6, 1.0, 1e4]),
    offset=st.sampled_from([0.0, 1.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_rms_norm_agrees_with_torch(leading, width, magnitude, offset, seed):
    generator = np.random.default_rng(seed)
    x = generator.standard_normal((*leading, width), np.float32) * np.float32(magnitude)
    weight = generator.standard_normal(width, np.float32)
    expected = torch.nn.functional.rms_norm(
        torch.tensor(x).double(), (width,), torch.tensor(weight).double() + offset, eps=1e-5
    ).numpy()
    actual = ReferenceOperators().rms_norm(x, DenseWeight(weight), 1e-5, offset)
    assert actual.dtype == np.float32
    np.testing.assert_array_max_ulp(actual, expected.astype(np.float32), maxulp=1)
