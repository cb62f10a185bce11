from __future__ import annotations

import numpy as np
import pytest
import torch

from pagoda.kernels.cuda.norm import add_rms_norm, rms_norm
from pagoda.kernels.reference import norm as twin
from tests.kernels.cuda.device import (
    DEVICE,
    DTYPES,
    TOLERANCES,
    assert_close,
    on_device,
    poisoned,
    rounded,
    to_numpy,
)

EPSILON = 1e-5


def numbers(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> np.ndarray:
    return rounded(np.random.default_rng(seed).standard_normal(shape, np.float32), dtype)


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("width", [48, 1000])
def test_the_norm_of_rows(kind: str, width: int) -> None:
    dtype = DTYPES[kind]
    x, weight = numbers(5, width, seed=1, dtype=dtype), numbers(width, seed=2)
    out = poisoned((5, width), dtype)
    rms_norm(out, on_device(x, dtype), on_device(weight), EPSILON, offset=1.0)
    assert_close(out, twin.rms_norm(x, weight, EPSILON, 1.0), TOLERANCES[kind])


def test_rows_may_lie_apart() -> None:
    x, weight = numbers(4, 96, seed=1), numbers(32, seed=2)
    out = poisoned((4, 32), torch.float32)
    rms_norm(out, on_device(x)[:, 32:64], on_device(weight), EPSILON)
    assert_close(out, twin.rms_norm(x[:, 32:64], weight, EPSILON, 0.0), 3e-6)


@pytest.mark.parametrize("kind", DTYPES)
def test_a_sum_and_its_norm(kind: str) -> None:
    dtype = DTYPES[kind]
    x, y = (numbers(3, 80, seed=seed, dtype=dtype) for seed in (1, 2))
    weight = numbers(80, seed=3)
    total = rounded(x + y, dtype)
    out, sums = poisoned((3, 80), dtype), on_device(x, dtype)
    add_rms_norm(out, sums, sums, on_device(y, dtype), on_device(weight), EPSILON)
    assert_close(sums, total, TOLERANCES[kind])
    assert_close(out, twin.rms_norm(total, weight, EPSILON, 0.0), TOLERANCES[kind])


def test_a_norm_in_float8_with_a_scale_a_row() -> None:
    x, weight = numbers(4, 64, seed=1), numbers(64, seed=2)
    out = torch.zeros((4, 64), dtype=torch.float8_e4m3fn, device=DEVICE)
    scales = poisoned((4,), torch.float32)
    rms_norm(out, on_device(x), on_device(weight), EPSILON, scales=scales)
    expected = twin.rms_norm(x, weight, EPSILON, 0.0)
    np.testing.assert_allclose(to_numpy(scales), np.abs(expected).max(axis=1) / 448, rtol=1e-5)
    # Three bits behind the point: an error of one part in sixteen.
    np.testing.assert_allclose(to_numpy(out) * to_numpy(scales)[:, None], expected, rtol=0.07, atol=2e-3)
