"""Products of many rows by a weight: what torch chooses beside the tiles of `product_tiles.py`.

    python -m benchmarks.gpu.products [--model 8B] [--rows 32,64,128,256,512] [--layers]

One line a matrix and number of rows: microseconds, and what reading the weights or multiplying takes at the measured
ceilings. Every result is held against float32 first. `--layers` times all products of a model's layers one after the
other, as a step makes them: a card that has reached its power limit shows there, and not in a single product.
"""

from __future__ import annotations

import argparse
import functools
import statistics
from collections.abc import Callable, Iterator

import torch

from benchmarks.gpu.kernels import BF16_FLOPS_PER_SECOND, MATRICES, READ_BYTES_PER_SECOND, num_sets, time_launches
from benchmarks.report import print_table
from pagoda.kernels.cuda.linear import Matrix, workspace_for
from pagoda.kernels.cuda.small_linear import MOST_ROWS, LinearWorkspace, small_linear

FP8 = torch.float8_e4m3fn
FP8_FLOPS_PER_SECOND = 1184e12
NUM_LAYERS = {"8B": 32, "0.6B": 28}
FEW_ROWS = [2, 8, MOST_ROWS]
REPEATS = 8

Multiply = Callable[[Matrix, torch.Tensor, torch.Tensor, LinearWorkspace, torch.Tensor | None], None]


def by_torch(
    matrix: Matrix, x: torch.Tensor, out: torch.Tensor, _: LinearWorkspace, x_scales: torch.Tensor | None
) -> None:
    matrix.multiply_by_torch(x, out, x_scales)


def by_our_kernel(
    matrix: Matrix, x: torch.Tensor, out: torch.Tensor, workspace: LinearWorkspace, x_scales: torch.Tensor | None
) -> None:
    """For 2 to 16 rows in fp8, where there are no tiles."""
    assert matrix.scales is not None
    small_linear(out, x, matrix.numbers, workspace, x_scales, matrix.scales.view(-1))


@functools.cache
def made(model: str, name: str, dtype: torch.dtype) -> list[Matrix]:
    num_out, num_in = MATRICES[model][name]
    count = max(2, num_sets(num_out * num_in * dtype.itemsize))
    found = []
    for _ in range(count):
        numbers = torch.randn((num_out, num_in), device="cuda", dtype=torch.bfloat16)
        scales = torch.rand((1, num_out), device="cuda") + 0.5 if dtype == FP8 else None
        found.append(Matrix(numbers.to(dtype), scales))
    return found


@functools.cache
def workspace_of(model: str, name: str, dtype: torch.dtype) -> LinearWorkspace:
    return workspace_for(made(model, name, dtype), torch.device("cuda"), torch.bfloat16)


@functools.cache
def inputs(num_rows: int, num_in: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor | None]:
    x = torch.randn((num_rows, num_in), device="cuda", dtype=torch.bfloat16).to(dtype)
    return x, torch.rand(num_rows, device="cuda") + 0.5 if dtype == FP8 else None


@functools.cache
def results(num_rows: int, num_out: int) -> torch.Tensor:
    return torch.empty((num_rows, num_out), device="cuda", dtype=torch.bfloat16)


def check(name: str, matrix: Matrix, x: torch.Tensor, out: torch.Tensor, x_scales: torch.Tensor | None) -> None:
    expected = x.float() @ matrix.numbers.float().t()
    if x_scales is not None and matrix.scales is not None:
        expected = expected * x_scales[:, None] * matrix.scales
    error = ((out.float() - expected).norm() / expected.norm()).item()
    assert error < 5e-3, f"{name}: error {error:.1e}"


def lines(model: str, dtype: torch.dtype, rows: list[int], other: Multiply) -> Iterator[list[object]]:
    """Another way, and ours."""
    for num_rows in rows:
        for name, (num_out, num_in) in MATRICES[model].items():
            if name == "head" and dtype == FP8:
                continue
            matrices, workspace = made(model, name, dtype), workspace_of(model, name, dtype)
            x, x_scales = inputs(num_rows, num_in, dtype)
            out = results(num_rows, num_out)
            seconds = []
            ways: list[Multiply] = [other, Matrix.multiply]
            for way in ways:
                out.fill_(float("nan"))
                way(matrices[0], x, out, workspace, x_scales)
                check(f"{num_rows} x {name}", matrices[0], x, out, x_scales)
                launches = [functools.partial(way, one, x, out, workspace, x_scales) for one in matrices]
                seconds.append(time_launches(launches))
            flops = FP8_FLOPS_PER_SECOND if dtype == FP8 else BF16_FLOPS_PER_SECOND
            reading = num_out * num_in * dtype.itemsize / READ_BYTES_PER_SECOND
            least = max(reading, 2 * num_rows * num_out * num_in / flops)
            yield [num_rows, name, *(f"{s * 1e6:.1f}" for s in (*seconds, least)), f"{seconds[0] / seconds[1]:.2f}x"]


def layers(model: str, dtype: torch.dtype, num_rows: int) -> list[float]:
    """Milliseconds of all products of the layers, by torch and by us, in turns."""
    names = [name for name in MATRICES[model] if name != "head"]
    graphs = []
    ways: list[Multiply] = [by_torch, Matrix.multiply]
    for way in ways:
        launches: list[Callable[[], None]] = []
        for layer in range(NUM_LAYERS[model]):
            for name in names:
                num_out, num_in = MATRICES[model][name]
                matrices, workspace = made(model, name, dtype), workspace_of(model, name, dtype)
                x, x_scales = inputs(num_rows, num_in, dtype)
                matrix, out = matrices[layer % len(matrices)], results(num_rows, num_out)
                launches.append(functools.partial(way, matrix, x, out, workspace, x_scales))
        for launch in launches[:8]:
            launch()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for launch in launches:
                launch()
        graphs.append(graph)
    times: list[list[float]] = [[], []]
    for repeat in range(REPEATS):
        pairs = list(zip(graphs, times, strict=True))
        for graph, own in pairs if repeat % 2 else pairs[::-1]:  # whoever comes second meets a hotter card
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            own.append(begin.elapsed_time(end))
    return [statistics.median(own) for own in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=sorted(NUM_LAYERS), default="8B")
    parser.add_argument("--rows", default="32,64,128,192,256,384,512,768,1000")
    parser.add_argument("--types", default="fp8,bf16")
    parser.add_argument("--layers", action="store_true", help="all products of the layers at once, nothing else")
    args = parser.parse_args()
    rows = [int(count) for count in args.rows.split(",")]
    for kind in args.types.split(","):
        dtype = FP8 if kind == "fp8" else torch.bfloat16
        if args.layers:
            found = []
            for num_rows in rows:
                torchs, own = layers(args.model, dtype, num_rows)
                found.append([num_rows, f"{torchs:.3f}", f"{own:.3f}", f"{torchs / own:.3f}x"])
            print_table(f"{args.model} {kind}, all layers", ["rows", "torch, ms", "ours", "ratio"], found)
            continue
        header = ["rows", "matrix", "torch, us", "ours", "ceiling", "ratio"]
        print_table(f"{args.model} {kind}", header, list(lines(args.model, dtype, rows, by_torch)))
        if kind == "fp8":
            header[2] = "small_linear, us"
            few = list(lines(args.model, dtype, FEW_ROWS, by_our_kernel))
            print_table(f"{args.model} {kind}, few rows", header, few)


if __name__ == "__main__":
    main()
