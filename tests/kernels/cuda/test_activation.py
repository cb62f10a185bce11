from __future__ import annotations

import numpy as np
import pytest
import torch

from pagoda.kernels.cuda.activation import gated, quantize
from pagoda.kernels.reference import activation as twin
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


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("is_gelu", [False, True])
@pytest.mark.parametrize("width", [80, 2100])
def test_gates_in_the_columns_of_one_product(kind: str, is_gelu: bool, width: int) -> None:
    dtype = DTYPES[kind]
    both = rounded(3 * np.random.default_rng(1).standard_normal((3, 2 * width), np.float32), dtype)
    out, product = poisoned((3, width), dtype), on_device(both, dtype)
    gated(out, product[:, :width], product[:, width:], is_gelu)
    expected = (twin.gated_gelu if is_gelu else twin.gated_silu)(both[:, :width], both[:, width:], np.float64)
    assert_close(out, expected, max(TOLERANCES[kind], 1e-5))


def test_a_gate_of_a_large_negative_number_is_nothing() -> None:
    gate = on_device(np.array([[-1e4, 1e4]], np.float32))
    for is_gelu in (False, True):
        out = poisoned((1, 2), torch.float32)
        gated(out, gate, torch.ones_like(gate), is_gelu)
        np.testing.assert_array_equal(to_numpy(out), [[0.0, 1e4]])


def test_rows_in_float8_keep_three_bits_and_a_scale() -> None:
    x = np.random.default_rng(2).standard_normal((4, 96), np.float32) * np.array(
        [[1e-6], [1.0], [1e4], [0.0]], np.float32
    )
    out = torch.zeros((4, 96), dtype=torch.float8_e4m3fn, device=DEVICE)
    scales = poisoned((4,), torch.float32)
    quantize(out, scales, on_device(x))
    again = to_numpy(out) * to_numpy(scales)[:, None]
    assert (np.abs(again - x) <= 0.07 * np.abs(x) + 1e-5 * np.abs(x).max(axis=1, keepdims=True)).all()
    assert (again[3] == 0).all()


def test_a_gate_in_float8() -> None:
    gate, up = (np.random.default_rng(seed).standard_normal((3, 64), np.float32) for seed in (1, 2))
    out = torch.zeros((3, 64), dtype=torch.float8_e4m3fn, device=DEVICE)
    scales = poisoned((3,), torch.float32)
    gated(out, on_device(gate), on_device(up), scales=scales)
    expected = twin.gated_silu(gate, up, np.float64)
    np.testing.assert_allclose(to_numpy(out) * to_numpy(scales)[:, None], expected, rtol=0.07, atol=5e-3)
