"""Rounding to bytes, against its definition worked out one value at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.kernels.reference import ReferenceOperators
from pagoda.kernels.reference.integer import round_inputs
from tests.kernels.cpu.blocks import random_weight


def by_hand(row: np.ndarray) -> list[float]:
    limit = 5 * math.sqrt(sum(float(v) ** 2 for v in row) / len(row))
    out = []
    for first in range(0, len(row), 32):
        block = [float(v) for v in row[first : first + 32]]
        size = max(abs(v) for v in block if abs(v) <= limit)
        for v in block:
            out.append(v if abs(v) > limit or size == 0 else round(v / size * 127) * size / 127)
    return out


@given(st.integers(0, 10**6), st.sampled_from([32, 64, 96, 576]), st.floats(1e-6, 1e6))
def test_rounding_follows_its_definition(seed: int, columns: int, size: float):
    generator = np.random.default_rng(seed)
    x = (generator.standard_normal((3, columns)) * size).astype(np.float32)
    x[0, generator.integers(columns)] *= 100
    rounded = round_inputs(x)
    expected = np.array([by_hand(row) for row in x])
    # A value that lies halfway between two bytes may go to either.
    step = np.abs(x).max(axis=1, keepdims=True) / 127
    different = np.abs(rounded - expected) > 1e-5 * size
    assert different.mean() < 0.01 and (np.abs(rounded - expected) <= 1.01 * step).all()


def test_what_stands_out_is_kept_and_does_not_coarsen_its_neighbours():
    x = np.full((1, 576), 0.01, np.float32)
    x[0, 7] = 50.0
    rounded = round_inputs(x)
    assert rounded[0, 7] == 50.0
    np.testing.assert_allclose(np.delete(rounded, 7), 0.01, rtol=1e-6)


@pytest.mark.parametrize("value", [0.0, 1e-35, 1e-42])
def test_nothing_stays_nothing(value: float):
    assert not round_inputs(np.full((2, 64), value, np.float32)).any()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_broken_row_shows_and_stays_alone(value: float):
    x = np.ones((3, 64), np.float32)
    x[1, 40] = value
    rounded = round_inputs(x)
    assert np.isnan(rounded[1]).all()
    np.testing.assert_array_equal(rounded[[0, 2]], x[[0, 2]])


def test_only_quantized_weights_are_met_by_bytes():
    x = np.random.default_rng(0).standard_normal((4, 256)).astype(np.float32)
    plain, rounding = ReferenceOperators(np.float64), ReferenceOperators(np.float64, compute="int8")
    dense, quantized = random_weight("F16", 8, 256), random_weight("Q4_K", 8, 256)
    np.testing.assert_array_equal(rounding.linear(x, dense), plain.linear(x, dense))
    np.testing.assert_array_equal(rounding.linear(x, quantized), plain.linear(round_inputs(x), quantized))
    assert not np.array_equal(rounding.linear(x, quantized), plain.linear(x, quantized))
