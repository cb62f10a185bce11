"""That interpreted kernels round as a GPU does, by the definition of each type: borders between two of its numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from tests.kernels.cuda.device import on_device, poisoned, to_numpy

# Bits of the exponent and behind the point; the largest finite number.
NARROW = {torch.bfloat16: (8, 7, float.fromhex("0x1.fep127")), torch.float8_e4m3fn: (4, 3, 448.0)}


@triton.jit
def _convert(x, out, SIZE: tl.constexpr):
    places = tl.arange(0, SIZE)
    numbers = tl.load(x + places)
    tl.store(out + places, numbers.to(out.dtype.element_ty))


def converted(array: np.ndarray, given: torch.dtype, wanted: torch.dtype) -> np.ndarray:
    size = triton.next_power_of_2(len(array))
    padded = np.zeros(size, np.float32)
    padded[: len(array)] = array
    out = poisoned((size,), torch.float32).to(wanted)
    _convert[(1,)](on_device(padded, given), out, size)
    return to_numpy(out)[: len(array)]


def numbers_of(dtype: torch.dtype) -> np.ndarray:
    """All that are not negative, in order: so an even place has an even last bit."""
    exponent_bits, point_bits, largest = NARROW[dtype]
    codes = np.arange(2 ** (exponent_bits + point_bits), dtype=np.float64)
    exponents, points = np.divmod(codes, 2**point_bits)
    bias = 2 ** (exponent_bits - 1) - 1
    whole = np.where(exponents > 0, 1.0, 0.0) + points / 2**point_bits
    numbers = np.ldexp(whole, (np.maximum(exponents, 1) - bias).astype(int))
    return numbers[numbers <= largest]


@pytest.mark.parametrize("dtype", NARROW)
def test_borders_between_numbers(dtype: torch.dtype) -> None:
    numbers = numbers_of(dtype)
    numbers = numbers[numbers >= 2.0**-120]  # float32 has borders exactly from here on
    low, high = numbers[:-1], numbers[1:]
    first = len(numbers_of(dtype)) - len(numbers)
    borders = ((low + high) / 2).astype(np.float32)
    np.testing.assert_array_equal(borders, (low + high) / 2)
    evens = np.where((np.arange(len(low)) + first) % 2 == 0, low, high)
    for sign in (1, -1):
        np.testing.assert_array_equal(converted(sign * borders, torch.float32, dtype), sign * evens)
        below, above = np.nextafter(borders, np.float32(0)), np.nextafter(borders, np.float32(np.inf))
        np.testing.assert_array_equal(converted(sign * below, torch.float32, dtype), sign * low)
        np.testing.assert_array_equal(converted(sign * above, torch.float32, dtype), sign * high)
        np.testing.assert_array_equal(converted(sign * numbers, torch.float32, dtype), sign * numbers)


def test_the_smallest_of_float8() -> None:
    smallest = 2.0**-9
    found = converted(
        np.array([0, smallest / 2, smallest * 0.51, smallest * 1.5, smallest * 7.5]), torch.float32, torch.float8_e4m3fn
    )
    np.testing.assert_array_equal(found / smallest, [0, 0, 1, 2, 8])


def test_beyond_the_largest() -> None:
    found = converted(np.array([1e9, -1e9, 464.1, np.inf, np.nan]), torch.float32, torch.float8_e4m3fn)
    np.testing.assert_array_equal(found, [448, -448, 448, 448, np.nan])
    found = converted(np.array([3.4e38, -3.4e38, np.inf, np.nan]), torch.float32, torch.bfloat16)
    np.testing.assert_array_equal(found, [np.inf, -np.inf, np.inf, np.nan])


@pytest.mark.parametrize("wide", [torch.float16, torch.float32, torch.bfloat16])
def test_wider_types_lose_nothing(wide: torch.dtype) -> None:
    """What is cached in float8 is multiplied in the type of the queries."""
    numbers = numbers_of(torch.float8_e4m3fn)
    np.testing.assert_array_equal(converted(numbers, torch.float8_e4m3fn, wide), numbers)
