"""Which cut of each matrix makes a step of one row quickest: plans of row_linear, tried one matrix at a time.

python -m benchmarks.gpu.rows [--models 8b,fp8,0.6b]
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.gpu.models import SHAPES, make_folder
from benchmarks.report import print_table
from pagoda import LLM, SamplingParams
from pagoda.executor.cuda.graphs import Variant
from pagoda.kernels.cuda import row_linear
from pagoda.kernels.cuda.row_linear import RowPlan

# Rows by columns, and warps.
WIDE = [(4, 512, 4), (4, 512, 2), (2, 1024, 2), (1, 2048, 2), (4, 1024, 4), (1, 1024, 1), (4, 256, 1), (2, 512, 1)]
NARROW = [(4, 512, 1), (8, 512, 1), (2, 512, 1), (4, 1024, 2), (8, 1024, 2), (4, 2048, 4), (1, 1024, 1), (1, 2048, 2)]
CONTEXT = 256
NUM_WARM, NUM_TIMED = 5, 40


@dataclass(frozen=True)
class Matrix:
    """`num_out` and the rest are what `row_plan` is asked with."""

    name: str
    num_out: int
    num_in: int
    size: int
    gated: bool = False
    has_norm: bool = False
    has_residual: bool = False

    @property
    def key(self) -> tuple[int, int, int, bool]:
        return self.num_out, self.num_in, self.size, self.gated


def matrices(shape: str, size: int) -> list[Matrix]:
    config = SHAPES[shape]
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    head_dim = config.get("head_dim", hidden // config["num_attention_heads"])
    queries = config["num_attention_heads"] * head_dim
    heads = queries + 2 * config["num_key_value_heads"] * head_dim
    return [
        Matrix("gate and up", inner, hidden, size, gated=True, has_norm=True),
        Matrix("down", hidden, inner, size, has_residual=True),
        Matrix("heads", heads, hidden, size, has_norm=True),
        Matrix("mixed heads", hidden, queries, size, has_residual=True),
        Matrix("logits", config["vocab_size"], hidden, 2, has_norm=True),
    ]


def candidates(size: int) -> list[RowPlan]:
    return [RowPlan(*plan) for plan in (WIDE if size > 1 else NARROW)]


def build(job: tuple[Matrix, RowPlan]) -> None:
    """Compile a kernel, so that others find it in the cache."""
    matrix, plan = job
    device = "cuda"
    dtype = torch.float8_e4m3fn if matrix.size == 1 else torch.bfloat16
    num_rows = 2 * matrix.num_out if matrix.gated else matrix.num_out
    weight = torch.zeros((num_rows, matrix.num_in), dtype=dtype, device=device)
    x = torch.zeros((1, matrix.num_in), dtype=torch.bfloat16, device=device)
    out = torch.zeros((1, matrix.num_out), dtype=torch.bfloat16, device=device)
    scales = torch.zeros(num_rows, device=device) if matrix.size == 1 else None
    norm = torch.zeros(matrix.num_in, device=device) if matrix.has_norm else None
    residual = out if matrix.has_residual else None
    row_linear.row_linear(out, x, weight, scales, None, residual, norm, 1e-5, 0.0, matrix.gated, plan)
    torch.cuda.synchronize()


class Tuned:
    """Stands in for `row_plan`: the plans that are tried, else the usual ones."""

    def __init__(self) -> None:
        self.plans: dict[tuple[int, int, int, bool], RowPlan] = {}
        self._usual = row_linear.row_plan

    def __call__(self, num_out: int, num_in: int, size: int, gated: bool) -> RowPlan:
        return self.plans.get((num_out, num_in, size, gated)) or self._usual(num_out, num_in, size, gated)


class StepOfOneRow:
    def __init__(self, shape: str, quantization: str, folder: Path) -> None:
        self._llm = LLM(
            make_folder(shape, folder),
            device="cuda",
            load_format="dummy",
            quantization=quantization,
            max_model_len=4096,
            max_num_seqs=8,
            max_num_batched_tokens=2048,
            block_size=64,
            gpu_memory_utilization=0.5,
        )
        self._executor: Any = self._llm.engine.loop.executor
        prompt = list(range(10, 10 + CONTEXT))
        self._llm.generate([prompt], SamplingParams(temperature=0, max_tokens=64, detokenize=False), use_tqdm=False)

    def milliseconds(self) -> float:
        """With the plans of the moment."""
        executor, variant = self._executor, Variant(1)
        executor._graphs._graphs.pop(variant, None)
        executor._capture(variant)
        executor._inputs.send_decoding(np.zeros(1, np.int32), 1)
        executor._rows.num_computed[0] = CONTEXT
        graph = executor._graphs._graphs[variant]
        for _ in range(NUM_WARM):
            graph.replay()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(NUM_TIMED):
            graph.replay()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) / NUM_TIMED

    def close(self) -> None:
        self._llm.close()
        gc.collect()
        torch.cuda.empty_cache()


def tune(model: str, folder: Path) -> None:
    shape, size = ("8b", 1) if model == "fp8" else (model, 2)
    step = StepOfOneRow(shape, "fp8" if size == 1 else "none", folder)
    tuned = Tuned()
    row_linear.row_plan = tuned
    lines: list[list[str]] = []
    best = step.milliseconds()
    again = step.milliseconds()
    print(f"{model}: {best:.4f} and {again:.4f} ms a step with the usual plans", flush=True)
    for matrix in matrices(shape, size):
        usual = tuned(*matrix.key)
        for plan in candidates(matrix.size):
            tuned.plans[matrix.key] = plan
            took = step.milliseconds()
            lines.append(
                [model, matrix.name, f"{plan.block_out} x {plan.block_in}, {plan.num_warps} warps", f"{took:.4f}"]
            )
            if took < best:
                best, usual = took, plan
        tuned.plans[matrix.key] = usual
    lines.append([model, "all", "best together", f"{step.milliseconds():.4f}"])
    row_linear.row_plan = tuned._usual
    step.close()
    print_table(f"{model}: milliseconds a step of one row, context {CONTEXT}", ["model", "matrix", "plan", "ms"], lines)
    print(
        model, {key: (plan.block_out, plan.block_in, plan.num_warps) for key, plan in tuned.plans.items()}, flush=True
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="8b,fp8,0.6b")
    parser.add_argument("--builders", type=int, default=14)
    args = parser.parse_args()
    models = args.models.split(",")
    jobs = []
    for model in models:
        shape, size = ("8b", 1) if model == "fp8" else (model, 2)
        for matrix in matrices(shape, size):
            jobs += [(matrix, plan) for plan in candidates(matrix.size)]
    with multiprocessing.get_context("spawn").Pool(args.builders) as pool:
        pool.map(build, jobs, chunksize=4)
    with tempfile.TemporaryDirectory() as folder:
        for model in models:
            tune(model, Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
