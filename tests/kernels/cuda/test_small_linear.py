from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from pagoda.kernels.cuda.small_linear import LinearPlan, linear_plan, linear_workspace, small_linear
from pagoda.kernels.reference.activation import gated_silu
from pagoda.kernels.reference.linear import linear
from tests.kernels.cuda.device import DEVICE, DTYPES, TOLERANCES, assert_close, on_device, poisoned, rounded, to_numpy

WORKSPACE = linear_workspace(512, 8, DEVICE)


def numbers(*shape: int, seed: int, dtype: torch.dtype) -> np.ndarray:
    return rounded(np.random.default_rng(seed).standard_normal(shape, np.float32), dtype)


def run(x: np.ndarray, weight: np.ndarray, dtype: torch.dtype, num_out: int, **others: Any) -> torch.Tensor:
    out = poisoned((len(x), num_out), others.pop("out_dtype", dtype))
    small_linear(out, on_device(x, dtype), on_device(weight, dtype), WORKSPACE, **others)
    assert not WORKSPACE.num_done.any()
    return out


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("num_rows", [1, 2, 16])
@pytest.mark.parametrize("num_stretches", [1, 3])
def test_types_rows_and_stretches(kind: str, num_rows: int, num_stretches: int):
    x, weight = (numbers(count, 150, seed=count, dtype=DTYPES[kind]) for count in (num_rows, 70))
    out = run(x, weight, DTYPES[kind], 70, plan=LinearPlan(16, 32, num_stretches, 4, 2))
    assert_close(out, linear(x, weight, None, np.float64), TOLERANCES[kind])


@pytest.mark.parametrize("num_rows", [1, 3])
@pytest.mark.parametrize("num_stretches", [1, 2])
def test_a_gated_pair(num_rows: int, num_stretches: int):
    dtype = torch.float32
    x, weight = (numbers(count, 64, seed=count, dtype=dtype) for count in (num_rows, 2 * 40))
    out = run(x, weight, dtype, 40, gated=True, plan=LinearPlan(16, 32, num_stretches, 4, 2))
    gate, up = np.split(linear(x, weight, None, np.float64), 2, axis=1)
    assert_close(out, gated_silu(gate, up, np.float64), 1e-5)


@pytest.mark.parametrize("num_rows", [1, 5])
def test_bias_and_residual_in_place(num_rows: int):
    dtype = torch.float32
    x, weight = (numbers(count, 64, seed=count, dtype=dtype) for count in (num_rows, 33))
    bias, residual = numbers(33, seed=1, dtype=dtype), numbers(num_rows, 33, seed=2, dtype=dtype)
    out = on_device(residual)
    small_linear(out, on_device(x), on_device(weight), WORKSPACE, bias=on_device(bias), residual=out)
    assert_close(out, linear(x, weight, bias, np.float64) + residual, 1e-5)


@pytest.mark.parametrize("num_rows", [1, 4])
@pytest.mark.parametrize("gated", [False, True])
def test_float8_with_scales_by_row(num_rows: int, gated: bool):
    dtype = torch.float8_e4m3fn
    x, weight = (numbers(count, 96, seed=count, dtype=dtype) for count in (num_rows, 48))
    x_scales, weight_scales = np.float32(0.1) + np.arange(num_rows, dtype=np.float32), np.linspace(0.1, 2, 48)
    weight_scales = weight_scales.astype(np.float32)
    scales = {"x_scales": on_device(x_scales), "weight_scales": on_device(weight_scales)}
    out = run(x, weight, dtype, 24 if gated else 48, gated=gated, out_dtype=torch.float32, **scales)
    expected = linear(x * x_scales[:, None], weight * weight_scales[:, None], None, np.float64)
    if gated:
        expected = gated_silu(*np.split(expected, 2, axis=1), np.float64)
    assert_close(out, expected, 1e-5)


def test_float8_weights_alone():
    weight = numbers(48, 96, seed=1, dtype=torch.float8_e4m3fn)
    x = numbers(2, 96, seed=2, dtype=torch.bfloat16)
    scales = np.linspace(0.1, 2, 48).astype(np.float32)
    out = poisoned((2, 48), torch.float32)
    stored = on_device(weight, torch.float8_e4m3fn)
    small_linear(out, on_device(x, torch.bfloat16), stored, WORKSPACE, weight_scales=on_device(scales))
    assert_close(out, linear(x, weight * scales[:, None], None, np.float64), 1e-5)


def test_the_plan_of_every_shape_fits_a_workspace():
    for num_rows in (1, 16):
        for num_out, num_in, width in ((1024, 3072, 2), (151936, 1024, 2), (4096, 14336, 1), (28672, 4096, 1)):
            plan = linear_plan(num_rows, num_out, num_in, width)
            assert plan.num_stretches >= 1 and plan.num_stretches * plan.block_in <= num_in


def test_a_row_has_the_same_bits_whoever_comes_along():
    x, weight = (numbers(count, 150, seed=count, dtype=torch.float16) for count in (6, 70))
    together = to_numpy(run(x, weight, torch.float16, 70))
    np.testing.assert_array_equal(to_numpy(run(x[2:4], weight, torch.float16, 70)), together[2:4])
