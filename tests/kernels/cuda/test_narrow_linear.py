from __future__ import annotations

import numpy as np
import pytest
import torch

from pagoda.kernels.cuda.counting import NOWHERE, bytes_of
from pagoda.kernels.cuda.linear import workspace_for
from pagoda.kernels.cuda.narrow_linear import GROUP, NarrowMatrix, narrow, narrow_bytes
from pagoda.kernels.cuda.row_linear import RowPlan
from pagoda.kernels.reference.activation import gated_silu
from pagoda.kernels.reference.linear import linear
from pagoda.kernels.reference.norm import rms_norm
from tests.kernels.cuda.device import DEVICE, DTYPES, TOLERANCES, assert_close, on_device, poisoned, rounded, to_numpy

EPSILON = 1e-5
ROUNDED_INPUTS = 1e-4  # to sixteen bits: three times what random signs of the errors make of it


def numbers(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> np.ndarray:
    return rounded(np.random.default_rng(seed).standard_normal(shape, np.float32), dtype)


def matrix_of(dense: np.ndarray, bits: int, bias: torch.Tensor | None = None) -> NarrowMatrix:
    return NarrowMatrix(*narrow(on_device(dense), bits), bias=bias, bits=bits, num_in=dense.shape[1])


def widened(matrix: NarrowMatrix) -> np.ndarray:
    """By hand: number n of a group lies in its word n % words, at place n // words."""
    words = to_numpy(matrix.numbers).view(np.uint32)
    scales = to_numpy(matrix.scales).astype(np.float64)
    in_group = GROUP * matrix.bits // 32
    wide = np.zeros((len(words), scales.shape[1] * GROUP))
    for column in range(wide.shape[1]):
        group, place = divmod(column, GROUP)
        word = words[:, group * in_group + place % in_group]
        stored = (word >> (matrix.bits * (place // in_group))) & ((1 << matrix.bits) - 1)
        wide[:, column] = (stored.astype(np.int64) - (1 << (matrix.bits - 1))) * scales[:, group]
    return wide[:, : matrix.num_in]


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("num_in", [128, 200, 640])
def test_what_is_stored_is_near_what_was_given(bits: int, num_in: int) -> None:
    dense = numbers(7, num_in, seed=1) * np.float32([[1], [100], [1e-3], [1], [1], [0], [5]])
    found = widened(matrix_of(dense, bits))
    tops = np.abs(dense).max(axis=1, keepdims=True)
    # Half a step of the coarsest scale, and what the narrowest one cuts off where that was better.
    assert (np.abs(found - dense) <= (0.31 if bits == 4 else 0.006) * tops + 1e-9).all()
    error = np.sqrt(((found - dense) ** 2).sum() / (dense**2).sum())
    assert error < (0.13 if bits == 4 else 0.01)


def test_a_narrower_scale_is_taken_where_it_leaves_less_error() -> None:
    dense = numbers(64, 512, seed=2)
    words, scales = narrow(on_device(dense), 4)
    plain = np.abs(dense.reshape(64, -1, GROUP)).max(axis=2) / 7
    assert (to_numpy(scales) < 0.99 * plain).mean() > 0.5
    coarse = np.clip(np.round(dense.reshape(64, -1, GROUP) / plain[:, :, None]), -8, 7) * plain[:, :, None]
    found = widened(NarrowMatrix(words, scales, bits=4, num_in=512))
    assert ((found - dense) ** 2).sum() < 0.97 * ((coarse.reshape(64, -1) - dense) ** 2).sum()


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("num_out", "num_in"), [(20, 128), (33, 1100), (9, 2304)])
def test_norm_product_and_residual_of_one_row(kind: str, bits: int, num_out: int, num_in: int) -> None:
    dtype = DTYPES[kind]
    x, norm = numbers(1, num_in, seed=1, dtype=dtype), numbers(num_in, seed=3)
    residual, bias = numbers(1, num_out, seed=4, dtype=dtype), numbers(num_out, seed=5, dtype=dtype)
    matrix = matrix_of(numbers(num_out, num_in, seed=2), bits, on_device(bias, dtype))
    out = on_device(residual, dtype)
    workspace = workspace_for([matrix], torch.device(DEVICE), dtype)
    matrix.multiply_row(out, on_device(x, dtype), workspace, out, on_device(norm), EPSILON, 1.0)
    expected = linear(rms_norm(x, norm, EPSILON, 1.0), widened(matrix), bias, np.float64) + residual
    assert_close(out, expected, max(TOLERANCES[kind], ROUNDED_INPUTS))


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("plan", [None, RowPlan(1, 16, 1), RowPlan(8, 64, 4)])
@pytest.mark.parametrize("has_norm", [False, True])
def test_a_gated_pair(bits: int, plan: RowPlan | None, has_norm: bool) -> None:
    x, norm = numbers(1, 384, seed=1), numbers(384, seed=3)
    matrix = matrix_of(numbers(2 * 37, 384, seed=2), bits)
    out = poisoned((1, 37), torch.float32)
    workspace = workspace_for([matrix], torch.device(DEVICE), torch.float32)
    others = {"norm": on_device(norm) if has_norm else None, "epsilon": EPSILON, "gated": True, "plan": plan}
    matrix.multiply_row(out, on_device(x), workspace, **others)
    inputs = rms_norm(x, norm, EPSILON, 0.0) if has_norm else x
    gate, up = np.split(linear(inputs, widened(matrix), None, np.float64), 2, axis=1)
    assert_close(out, gated_silu(gate, up, np.float64), ROUNDED_INPUTS)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("has_bias", [False, True])
def test_many_rows_are_multiplied_by_the_widened_matrix(bits: int, has_bias: bool) -> None:
    x, bias = numbers(5, 300, seed=1), numbers(24, seed=3)
    others = [matrix_of(numbers(24, 300, seed=seed), bits, on_device(bias) if has_bias else None) for seed in (2, 4)]
    workspace = workspace_for(others, torch.device(DEVICE), torch.float32)
    for matrix in others:  # one after the other in the same room
        out = poisoned((5, 24), torch.float32)
        matrix.multiply(on_device(x), out, workspace)
        assert_close(out, linear(x, widened(matrix), bias if has_bias else None, np.float64), 1e-5)
        assert_close(workspace.wide[: 24 * 300].view(24, 300), widened(matrix), 1e-6)


@pytest.mark.parametrize("bits", [4, 8])
def test_the_bytes_are_known_beforehand(bits: int) -> None:
    parts = narrow(torch.empty((10, 300), device=NOWHERE), bits)
    assert {part.device for part in parts} == {NOWHERE}
    assert bytes_of(*parts) == narrow_bytes(10, 300, bits) == bytes_of(*narrow(torch.zeros((10, 300)), bits))
