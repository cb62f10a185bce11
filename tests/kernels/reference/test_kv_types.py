"""Bytes and halves against exact arithmetic."""

from __future__ import annotations

import struct
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pagoda.kernels.reference.kv_types import from_bytes, to_bytes, to_halves

SINGLES = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(st.lists(SINGLES, min_size=1, max_size=40))
def test_a_byte_is_the_nearest_step_of_its_scale(numbers: list[float]):
    vector = np.array([numbers], np.float32)
    found, scales = to_bytes(vector)
    if scales[0] == 0:
        assert np.abs(vector).max() < 127 * 2.0**-125
        assert not found.any()
        return
    assert np.abs(found).max() == 127
    for number, byte in zip(vector[0].tolist(), found[0].tolist(), strict=True):
        # Half a step, and what two roundings to single precision can add.
        off = abs(Fraction(number) - byte * Fraction(float(scales[0])))
        assert off <= Fraction(float(scales[0])) * (Fraction(1, 2) + 127 * Fraction(2) ** -22)


def test_between_two_steps_the_even_one():
    vector = np.array([[127, 0.5, 1.5, 2.5, -0.5, -1.5, 126.5]], np.float32)
    assert to_bytes(vector)[0].tolist() == [[127, 0, 2, 2, 0, -2, 126]]


def test_every_vector_has_a_scale_of_its_own():
    vectors = np.random.default_rng(0).standard_normal((3, 5, 2, 16), np.float32)
    numbers, scales = to_bytes(vectors)
    assert scales.shape == (3, 5, 2)
    np.testing.assert_allclose(scales * 127, np.abs(vectors).max(axis=-1), rtol=1e-6)
    assert np.abs(from_bytes(numbers, scales) - vectors).max() <= scales.max() * 0.51


def test_nothing_is_kept_as_nothing():
    numbers, scales = to_bytes(np.array([[0.0, -0.0], [1e-45, -1e-40]], np.float32))
    assert not numbers.any() and not scales.any()


def test_what_is_no_number_spoils_its_own_vector_only():
    vectors = np.ones((4, 8), np.float32)
    vectors[0, 3], vectors[1, 0], vectors[2, 7] = np.nan, np.inf, -np.inf
    read = from_bytes(*to_bytes(vectors))
    assert np.isnan(read[:3]).all()
    np.testing.assert_array_equal(read[3], vectors[3])


@given(st.floats(-65000, 65000, width=32))
def test_halves_are_those_of_the_standard_library(number: float):
    [half] = to_halves(np.array([number], np.float32))
    assert struct.pack("<e", number) == half.tobytes()


def test_what_is_too_large_for_a_half_is_infinite():
    np.testing.assert_array_equal(to_halves(np.array([1e6, -1e6], np.float32)), np.array([np.inf, -np.inf], np.float16))
