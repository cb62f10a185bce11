"""The binding runs on a Hopper GPU alone; elsewhere products are left to torch."""

from __future__ import annotations

import pytest
import torch

from pagoda.kernels.cuda.cublaslt import HOPPER, tiled_product
from pagoda.kernels.cuda.linear import Matrix, workspace_for

on_hopper = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() != HOPPER, reason="needs a Hopper GPU"
)
FP8 = torch.float8_e4m3fn
ROW_COUNTS = (2, 7, 16, 17, 33, 64, 100, 128, 192, 256, 257, 384, 777, 1000, 3000)


def drawn(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(shape, device="cuda", dtype=torch.float32).to(dtype)


def test_without_a_gpu_nothing_is_tiled():
    x, weights = torch.zeros((64, 4096), dtype=torch.bfloat16), torch.zeros((4096, 4096), dtype=torch.bfloat16)
    assert tiled_product(torch.empty((64, 4096), dtype=torch.bfloat16), x, weights, has_bias=False) is None


@on_hopper
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("shape", [(6144, 4096), (4096, 4096), (28672, 1024), (2048, 14336)])
def test_bf16_products_are_those_of_float64(has_bias, shape):
    num_out, num_in = shape
    matrix = Matrix(drawn(num_out, num_in), bias=drawn(num_out) if has_bias else None)
    workspace = workspace_for([matrix], torch.device("cuda"), torch.bfloat16)
    for num_rows in ROW_COUNTS:
        x = drawn(num_rows, num_in)
        out = torch.full((num_rows, num_out), float("nan"), device="cuda", dtype=torch.bfloat16)
        matrix.multiply(x, out, workspace)
        expected = x.double() @ matrix.numbers.double().t()
        if matrix.bias is not None:
            expected += matrix.bias.double()
        assert ((out.double() - expected).norm() / expected.norm()).item() < 3e-3, f"{num_rows} rows"


@on_hopper
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("shape", [(6144, 4096), (1024, 2048), (28672, 1024), (2048, 14336)])
def test_fp8_products_with_scales_are_those_of_float64(has_bias, shape):
    num_out, num_in = shape
    scales = torch.rand((1, num_out), device="cuda") + 0.1
    matrix = Matrix(drawn(num_out, num_in, dtype=FP8), scales, drawn(num_out) if has_bias else None)
    workspace = workspace_for([matrix], torch.device("cuda"), torch.bfloat16)
    for num_rows in ROW_COUNTS:
        x, x_scales = drawn(num_rows, num_in, dtype=FP8), torch.rand(num_rows, device="cuda") + 0.1
        out = torch.full((num_rows, num_out), float("nan"), device="cuda", dtype=torch.bfloat16)
        matrix.multiply(x, out, workspace, x_scales)
        expected = (x.double() @ matrix.numbers.double().t()) * x_scales.double()[:, None] * scales.double()
        if matrix.bias is not None:
            expected += matrix.bias.double()
        assert ((out.double() - expected).norm() / expected.norm()).item() < 5e-3, f"{num_rows} rows"


@on_hopper
@pytest.mark.parametrize(("num_rows", "dtype"), [(256, torch.bfloat16), (64, FP8), (8192, torch.bfloat16)])
def test_the_products_that_it_is_for_are_tiled(num_rows, dtype):
    x, weights = drawn(num_rows, 4096, dtype=dtype), drawn(28672, 4096, dtype=dtype)
    out = torch.empty((num_rows, 28672), device="cuda", dtype=torch.bfloat16)
    assert tiled_product(out, x, weights, has_bias=False) is not None


@on_hopper
def test_what_does_not_lie_as_it_must_is_left_to_torch():
    weights = drawn(4096, 4096)
    out = torch.empty((64, 4096), device="cuda", dtype=torch.bfloat16)
    assert tiled_product(out, drawn(64, 8192)[:, :4096], weights, has_bias=False) is None
    assert tiled_product(out, drawn(64 * 4096 + 1)[1:].view(64, 4096), weights, has_bias=False) is None
    assert tiled_product(out, drawn(64, 4096, dtype=torch.float32), weights.float(), has_bias=False) is None


@on_hopper
def test_a_product_can_be_captured_and_run_again_on_other_numbers():
    matrix = Matrix(drawn(4096, 4096))
    workspace = workspace_for([matrix], torch.device("cuda"), torch.bfloat16)
    x, out = drawn(192, 4096), torch.empty((192, 4096), device="cuda", dtype=torch.bfloat16)
    matrix.multiply(x, out, workspace)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        matrix.multiply(x, out, workspace)
    x.copy_(drawn(192, 4096))
    out.fill_(float("nan"))
    graph.replay()
    expected = torch.empty_like(out)
    matrix.multiply(x, expected, workspace)
    assert torch.equal(out, expected)
