from __future__ import annotations

import numpy as np
import pytest
import torch

from pagoda.kernels.cuda.row_linear import row_linear
from pagoda.kernels.reference.activation import gated_silu
from pagoda.kernels.reference.linear import linear
from pagoda.kernels.reference.norm import rms_norm
from tests.kernels.cuda.device import DTYPES, TOLERANCES, assert_close, on_device, poisoned, rounded

EPSILON = 1e-5


def numbers(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> np.ndarray:
    return rounded(np.random.default_rng(seed).standard_normal(shape, np.float32), dtype)


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize(("num_out", "num_in"), [(20, 48), (33, 1100)])
def test_norm_product_and_residual(kind: str, num_out: int, num_in: int) -> None:
    dtype = DTYPES[kind]
    x, weight = numbers(1, num_in, seed=1, dtype=dtype), numbers(num_out, num_in, seed=2, dtype=dtype)
    norm, residual = numbers(num_in, seed=3), numbers(1, num_out, seed=4, dtype=dtype)
    bias = numbers(num_out, seed=5, dtype=dtype)
    out = on_device(residual, dtype)
    others = {"bias": on_device(bias, dtype), "residual": out, "norm": on_device(norm)}
    row_linear(out, on_device(x, dtype), on_device(weight, dtype), **others, epsilon=EPSILON, offset=1.0)
    expected = linear(rms_norm(x, norm, EPSILON, 1.0), weight, bias, np.float64) + residual
    assert_close(out, expected, max(TOLERANCES[kind], 1e-5))


@pytest.mark.parametrize("has_norm", [False, True])
def test_a_gated_pair(has_norm: bool) -> None:
    x, weight, norm = numbers(1, 64, seed=1), numbers(2 * 40, 64, seed=2), numbers(64, seed=3)
    out = poisoned((1, 40), torch.float32)
    row_linear(
        out, on_device(x), on_device(weight), norm=on_device(norm) if has_norm else None, epsilon=EPSILON, gated=True
    )
    inputs = rms_norm(x, norm, EPSILON, 0.0) if has_norm else x
    gate, up = np.split(linear(inputs, weight, None, np.float64), 2, axis=1)
    assert_close(out, gated_silu(gate, up, np.float64), 1e-5)


def test_float8_weights_with_a_scale_an_output() -> None:
    weight = numbers(24, 64, seed=2, dtype=torch.float8_e4m3fn)
    x, scales = numbers(1, 64, seed=1), np.abs(numbers(24, seed=3))
    out = poisoned((1, 24), torch.float32)
    row_linear(out, on_device(x), on_device(weight, torch.float8_e4m3fn), on_device(scales))
    assert_close(out, linear(x, weight * scales[:, None], None, np.float64), 1e-5)
