"""Products with packed weights, held to the error that single precision allows for a sum taken in order."""

from __future__ import annotations

import numpy as np
import pytest

from pagoda.kernels.cpu import CpuKernels
from pagoda.kernels.cpu.library import FORMATS as PACKED_FORMATS
from pagoda.weights.tensor import QuantizedTensor
from tests.kernels.cpu.blocks import random_weight
from tests.kernels.cpu.programs import flat_batch, normal, over, run_native
from tests.kernels.reference.dense_weight import DenseWeight

TOKENS = (1, 2, 5, 12, 13, 37)
UNIT_ROUNDOFF = 2.0**-24


def check(
    kernels: CpuKernels, weight: QuantizedTensor | DenseWeight, num_tokens: int, bias: DenseWeight | None = None
) -> None:
    x = normal(num_tokens, weight.shape[1], seed=num_tokens)
    actual = run_native(kernels, over(lambda table, x: table.linear(x, weight, bias), x), flat_batch(num_tokens))
    matrix = weight.to_float32().astype(np.float64)
    expected = x.astype(np.float64) @ matrix.T
    magnitude = np.abs(x.astype(np.float64)) @ np.abs(matrix.T)
    if bias is not None:
        expected += bias.values
        magnitude += np.abs(bias.values)
    bound = (weight.shape[1] + 1) * UNIT_ROUNDOFF * magnitude + 1e-30
    assert actual.shape == expected.shape and actual.dtype == np.float32
    worst = np.max(np.abs(actual - expected) / bound)
    assert worst <= 1.0, f"{worst:.2f} times the bound"


@pytest.mark.parametrize("format_name", PACKED_FORMATS)
def test_every_format_and_number_of_tokens(kernels: CpuKernels, format_name: str):
    for num_tokens in TOKENS:
        check(kernels, random_weight(format_name, 53, 512, seed=num_tokens), num_tokens)


@pytest.mark.parametrize("num_tokens", TOKENS)
def test_every_number_of_rows(kernels: CpuKernels, num_tokens: int):
    for rows in (*range(1, 36), 47, 48, 49, 64, 79, 80, 96, 100):
        check(kernels, random_weight("Q4_1", rows, 64, seed=rows), num_tokens)


@pytest.mark.parametrize("columns", [1, 2, 15, 17, 33, 100])
def test_float_weights_take_any_number_of_columns(kernels: CpuKernels, columns: int):
    for num_tokens in (1, 3, 14):
        check(kernels, random_weight("F16", 21, columns), num_tokens)


@pytest.mark.parametrize("rows", [16, 48, 97])
def test_a_bias_is_added(kernels: CpuKernels, rows: int):
    for num_tokens in TOKENS:
        check(kernels, random_weight("Q8_0", rows, 96), num_tokens, DenseWeight(10 * normal(rows, seed=rows)))


def test_products_of_products(kernels: CpuKernels):
    """The output of one product, padded to whole lanes, is the input of the next."""
    up, down = random_weight("F32", 37, 20), random_weight("F32", 11, 37, seed=1)
    x = normal(9, 20)
    actual = run_native(kernels, over(lambda table, x: table.linear(table.linear(x, up), down), x), flat_batch(9))
    expected = x.astype(np.float64) @ up.to_float32().T @ down.to_float32().T
    np.testing.assert_allclose(actual, expected, atol=1e-4)


def test_large_and_tiny_numbers_and_zeros(kernels: CpuKernels):
    for factor in (0.0, 1e-38, 1e-20, 1e20, 1e36):
        weight = DenseWeight(normal(19, 24) * np.float32(factor))
        for num_tokens in (1, 13):
            x = normal(num_tokens, 24)
            forward = over(lambda table, x, weight=weight: table.linear(x, weight), x)
            actual = run_native(kernels, forward, flat_batch(num_tokens))
            expected = x.astype(np.float64) @ weight.values.astype(np.float64).T
            np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-4 * factor + 1e-44)


def test_infinite_and_undefined_inputs_stay_in_their_row(kernels: CpuKernels):
    weight = DenseWeight(normal(19, 24) + 3)
    x = normal(14, 24)
    x[3, 5], x[12, 0] = np.nan, np.inf
    actual = run_native(kernels, over(lambda table, x: table.linear(x, weight), x), flat_batch(14))
    assert np.isnan(actual[3]).all() and np.isinf(actual[12]).all()
    assert np.isfinite(np.delete(actual, [3, 12], axis=0)).all()
