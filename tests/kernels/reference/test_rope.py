from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pagoda.kernels.base import RopeFrequencies
from pagoda.kernels.reference import ReferenceOperators


def frequencies(rotary_dim: int, interleaved: bool = False, magnitude: float = 1.0) -> RopeFrequencies:
    inverse = 10_000.0 ** (-np.arange(0, rotary_dim, 2) / rotary_dim)
    return RopeFrequencies(inverse.astype(np.float32), interleaved, magnitude)


@pytest.mark.parametrize("accumulate", [np.float32, np.float64])
@given(
    num_heads=st.integers(1, 4),
    half=st.integers(1, 32),
    positions=st.lists(st.integers(0, 100_000), min_size=1, max_size=6),
    seed=st.integers(0, 2**32 - 1),
)
def test_halves_turn_as_complex_numbers(accumulate, num_heads, half, positions, seed):
    operators = ReferenceOperators(accumulate)
    x = np.random.default_rng(seed).standard_normal((len(positions), num_heads, 2 * half), np.float32)
    rope = frequencies(2 * half)
    actual = operators.rope(x, operators.rope_table(np.array(positions, np.int32), rope))

    angles = np.array(positions, np.float32)[:, None, None] * rope.inverse_frequencies
    turn = torch.polar(torch.ones(angles.shape, dtype=torch.float64), torch.tensor(angles).double())
    turned = torch.complex(*torch.tensor(x).double().split(half, dim=-1)) * turn
    expected = torch.cat((turned.real, turned.imag), dim=-1)
    assert actual.dtype == np.float32
    np.testing.assert_allclose(actual, expected.numpy(), atol=1e-6)


@given(half=st.integers(1, 16), position=st.integers(0, 5000), seed=st.integers(0, 2**32 - 1))
def test_neighbours_turn_as_complex_numbers(half, position, seed):
    operators = ReferenceOperators(np.float64)
    x = np.random.default_rng(seed).standard_normal((1, 2, 2 * half), np.float32)
    rope = frequencies(2 * half, interleaved=True)
    actual = operators.rope(x, operators.rope_table(np.array([position], np.int32), rope))

    angle = np.float32(position) * rope.inverse_frequencies
    turn = torch.polar(torch.ones(half, dtype=torch.float64), torch.tensor(angle).double())
    pairs = torch.view_as_complex(torch.tensor(x).double().reshape(1, 2, half, 2))
    expected = torch.view_as_real(pairs * turn).reshape(1, 2, 2 * half)
    np.testing.assert_allclose(actual, expected.numpy(), atol=1e-6)


def test_what_lies_beyond_the_rotary_width_passes_through():
    operators = ReferenceOperators()
    x = np.random.default_rng(3).standard_normal((2, 1, 12), np.float32)
    for interleaved in (False, True):
        table = operators.rope_table(np.array([5, 9], np.int32), frequencies(8, interleaved))
        turned = operators.rope(x, table)
        np.testing.assert_array_equal(turned[..., 8:], x[..., 8:])
        alone = operators.rope(x[..., :8], table)
        np.testing.assert_array_equal(turned[..., :8], alone)


def test_magnitude_scales_the_turn():
    operators = ReferenceOperators()
    x = np.random.default_rng(3).standard_normal((2, 1, 8), np.float32)
    positions = np.array([5, 9], np.int32)
    plain = operators.rope(x, operators.rope_table(positions, frequencies(8)))
    scaled = operators.rope(x, operators.rope_table(positions, frequencies(8, magnitude=1.25)))
    np.testing.assert_allclose(scaled, 1.25 * plain, rtol=1e-6, atol=1e-6)
