from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from pagoda.kernels.cuda import fixed_linear as kernel
from pagoda.kernels.cuda.fixed_linear import FixedTile, fixed_linear, fixed_workspace, stretches
from pagoda.kernels.reference.linear import linear
from tests.kernels.cuda.device import DEVICE, DTYPES, TOLERANCES, assert_close, on_device, poisoned, rounded, to_numpy

KINDS = {**DTYPES, "fp8": torch.float8_e4m3fn}
# Each with its own tile, and two that do not fill their last one.
ROW_COUNTS = [1, 17, 64, 70, 129, 257]
NUM_OUT = 70
LONG = 272  # columns: two stretches, of which the second is shorter
# The tensor cores keep some 14 bits of a float8 sum, over one block of columns.
SUMS = {kind: 1e-3 if kind == "fp8" and DEVICE != "cpu" else 1e-5 for kind in KINDS}


@pytest.fixture
def short_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "SHORTEST_STRETCH", LONG // 2)


def numbers(*shape: int, seed: int, kind: str) -> np.ndarray:
    return rounded(np.random.default_rng(seed).standard_normal(shape, np.float32), KINDS[kind])


def run(x: np.ndarray, weight: np.ndarray, kind: str, **others: Any) -> torch.Tensor:
    stored = on_device(weight, KINDS[kind])
    workspace = fixed_workspace([stored], DEVICE)
    out = poisoned((len(x), len(weight)), torch.float32)
    fixed_linear(out, on_device(x, KINDS[kind]), stored, workspace, **others)
    assert not workspace.num_done.any()
    return out


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_rows", ROW_COUNTS)
def test_types_and_rows(kind: str, num_rows: int):
    x, weight = (numbers(count, 160, seed=count, kind=kind) for count in (num_rows, NUM_OUT))
    assert_close(run(x, weight, kind), linear(x, weight, None, np.float64), SUMS[kind])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_in", [16, 64, 150, 200])
def test_widths_that_fill_no_block_and_lines_the_copy_engine_cannot_take(kind: str, num_in: int):
    x, weight = (numbers(count, num_in, seed=count, kind=kind) for count in (5, NUM_OUT))
    assert_close(run(x, weight, kind), linear(x, weight, None, np.float64), SUMS[kind])


def test_columns_of_a_wider_matrix_and_a_narrower_result():
    x, weight = numbers(20, 200, seed=1, kind="bf16"), numbers(33, 96, seed=2, kind="bf16")
    out = poisoned((20, 40), torch.bfloat16)
    stored = on_device(weight, torch.bfloat16)
    wide = on_device(x, torch.bfloat16)
    fixed_linear(out[:, :33], wide[:, 40:136], stored, fixed_workspace([stored], DEVICE))
    assert_close(out[:, :33], linear(x[:, 40:136], weight, None, np.float64), TOLERANCES["bf16"])
    assert out[:, 33:].isnan().all()


@pytest.mark.parametrize("num_rows", [2, 70])
def test_bias(num_rows: int):
    x, weight = (numbers(count, 96, seed=count, kind="bf16") for count in (num_rows, NUM_OUT))
    bias = numbers(NUM_OUT, seed=3, kind="bf16")
    out = run(x, weight, "bf16", bias=on_device(bias, torch.bfloat16))
    assert_close(out, linear(x, weight, bias, np.float64), SUMS["bf16"])


@pytest.mark.parametrize("num_rows", [2, 70, 300])
def test_float8_with_scales_by_row(num_rows: int):
    x, weight = (numbers(count, 256, seed=count, kind="fp8") for count in (num_rows, NUM_OUT))
    x_scales = np.linspace(0.1, 3, num_rows, dtype=np.float32)
    weight_scales = np.linspace(0.1, 2, NUM_OUT, dtype=np.float32)
    scales = {"x_scales": on_device(x_scales), "weight_scales": on_device(weight_scales)}
    expected = linear(x * x_scales[:, None], weight * weight_scales[:, None], None, np.float64)
    assert_close(run(x, weight, "fp8", **scales), expected, SUMS["fp8"])


@pytest.mark.usefixtures("short_stretches")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("apart", [False, True])
def test_stretches_of_columns(kind: str, apart: bool):
    assert stretches(NUM_OUT, LONG, KINDS[kind].itemsize)[0] == 2
    x, weight = (numbers(count, LONG, seed=count, kind=kind) for count in (20, NUM_OUT))
    assert_close(run(x, weight, kind, apart=apart), linear(x, weight, None, np.float64), SUMS[kind])


def test_a_weight_is_cut_by_its_own_shape_into_stretches_that_hold_all_of_it():
    for width in (1, 2, 4):
        for num_out in (1, 64, 1024, 4096, 6144, 28672, 151936):
            for num_in in (16, 80, 1024, 2048, 2080, 3072, 4096, 14336):
                count, length = stretches(num_out, num_in, width)
                assert (count - 1) * length < num_in <= count * length
                assert length % kernel.COLUMNS[width] == 0
    assert stretches(4096, 14336, 2) == (2, 7168)
    assert stretches(28672, 4096, 2) == (1, 4096)


@pytest.mark.usefixtures("short_stretches")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_in", [160, LONG])
def test_a_row_has_the_same_bits_whoever_comes_along(kind: str, num_in: int):
    x, weight = (numbers(count, num_in, seed=count, kind=kind) for count in (ROW_COUNTS[-1], NUM_OUT))
    bias = on_device(numbers(NUM_OUT, seed=3, kind="bf16"), torch.bfloat16)
    together = to_numpy(run(x, weight, kind, bias=bias))
    for count in ROW_COUNTS[:-1]:
        first = 3 if count == 1 else 0
        alone = to_numpy(run(x[first : first + count], weight, kind, bias=bias))
        np.testing.assert_array_equal(alone, together[first : first + count], err_msg=f"{count} rows")


@pytest.mark.usefixtures("short_stretches")
@pytest.mark.parametrize("kind", KINDS)
def test_neither_the_tile_nor_who_adds_the_stretches_changes_a_bit(kind: str):
    x, weight = (numbers(count, LONG, seed=count, kind=kind) for count in (40, NUM_OUT))
    expected = to_numpy(run(x, weight, kind))
    for tile in (None, FixedTile(16, 64, 4, 3), FixedTile(32, 128, 8, 2), FixedTile(128, 128, 8, 2)):
        for apart in (False, True):
            found = to_numpy(run(x, weight, kind, tile=tile, apart=apart))
            np.testing.assert_array_equal(found, expected, err_msg=f"{tile}, {apart}")


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")
@pytest.mark.parametrize("kind", ["bf16", "fp8"])
@pytest.mark.parametrize(("num_out", "num_in"), [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)])
def test_real_shapes_on_the_tensor_cores(kind: str, num_out: int, num_in: int):
    generator = torch.Generator(DEVICE).manual_seed(1)
    x, weight = (
        torch.randn((count, num_in), device=DEVICE, generator=generator).to(KINDS[kind]) for count in (1100, num_out)
    )
    workspace = fixed_workspace([weight], DEVICE)
    together = torch.empty((len(x), num_out), device=DEVICE)
    fixed_linear(together, x, weight, workspace)
    exact = x[:8].double() @ weight.double().t()
    assert (together[:8] - exact).norm() / exact.norm() < 1e-3
    for count in (1, 2, 16, 17, 33, 64, 65, 128, 129, 256, 257, 512, 1024):
        out = torch.empty((count, num_out), device=DEVICE)
        fixed_linear(out, x[:count], weight, workspace)
        assert torch.equal(out, together[:count]), f"{count} rows"
