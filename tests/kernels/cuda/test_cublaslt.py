"""The binding runs on a Hopper GPU alone; elsewhere products are left to torch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pagoda.kernels.cuda import cublaslt
from pagoda.kernels.cuda.cublaslt import HOPPER, tiled_product
from pagoda.kernels.cuda.linear import Matrix, workspace_for
from pagoda.kernels.cuda.product_tiles import tiles_to_try

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


class RefusingLibrary:
    """Stands in for the library where there is no GPU: knows every tile but some."""

    handle = None

    def __init__(self, refused: set[int]) -> None:
        self._refused = refused
        self.asked: list[int] = []
        self.settings: dict[int, int] = {}

    def call(self, name: str, *arguments: Any) -> None:
        assert self.try_call(name, *arguments) == 0

    def try_call(self, name: str, *arguments: Any) -> int:
        if name == "MatmulAlgoGetHeuristic":
            arguments[-1]._obj.value = 1
        elif name == "MatmulAlgoConfigSetAttribute":
            self.settings[arguments[1]] = arguments[2]._obj.value
        elif name == "MatmulAlgoCheck":
            self.asked.append(self.settings[cublaslt.TILE_ID])
            return int(self.asked[-1] in self._refused)
        return 0


@pytest.mark.parametrize("num_refused", [0, 1, 3])
def test_what_the_library_refuses_is_passed_over(num_refused: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = cublaslt.ProductShape(256, 4096, 14336, FP8, torch.bfloat16, has_bias=False)
    tiles = [cublaslt.tile_id(tile) for tile in tiles_to_try(256, 4096, 14336, 1, 132)]
    first = list(dict.fromkeys(tiles))
    library = RefusingLibrary(set(first[:num_refused]))
    device = SimpleNamespace(major=9, minor=0, multi_processor_count=132)
    monkeypatch.setattr(cublaslt, "_library", lambda: library)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: device)
    assert cublaslt._planned.__wrapped__(shape, 0) is not None
    assert list(dict.fromkeys(library.asked)) == first[: num_refused + 1]
    assert library.settings[cublaslt.NUM_SPLITS] == 1


def test_where_it_refuses_everything_torch_multiplies(monkeypatch: pytest.MonkeyPatch) -> None:
    library = RefusingLibrary(set(range(1000)))
    device = SimpleNamespace(major=9, minor=0, multi_processor_count=132)
    monkeypatch.setattr(cublaslt, "_library", lambda: library)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: device)
    shape = cublaslt.ProductShape(256, 4096, 4096, torch.bfloat16, torch.bfloat16, has_bias=True)
    assert cublaslt._planned.__wrapped__(shape, 0) is None
    older = SimpleNamespace(major=8, minor=0, multi_processor_count=108)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: older)
    library.asked.clear()
    assert cublaslt._planned.__wrapped__(shape, 0) is None
    assert not library.asked
