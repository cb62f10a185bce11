"""Where a step's time goes as the context grows: `python -m benchmarks.cpu.attention MODEL`.

The cache holds random keys and values: only the time is looked at. Milliseconds of the first thread, medians.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.report import machine, print_table
from pagoda.core.cache import KVCacheType
from pagoda.kernels.base import KVPages, RaggedBatch
from pagoda.kernels.cpu import CpuKernels
from pagoda.kernels.cpu.program import Program
from pagoda.kernels.cpu.recorder import Operation
from pagoda.models import Model, load_model
from pagoda.weights.checkpoint import open_checkpoint

PAGE_SIZE = 16
SHOWN = (Operation.ATTENTION, Operation.WRITE, Operation.ROPE, Operation.LINEAR)


@dataclass(frozen=True)
class Shape:
    """`num_rows` sequences of `num_new` tokens each at the end of `context` tokens, the first `shared` in common."""

    num_rows: int
    num_new: int
    context: int
    shared: int = 0

    @property
    def name(self) -> str:
        under = f", {self.shared} shared" if self.shared else ""
        return f"{self.num_rows} x {self.num_new} at {self.context}{under}"

    @property
    def num_pages(self) -> int:
        return self.num_rows * -(-self.context // PAGE_SIZE)

    def batch(self, num_groups: int) -> RaggedBatch:
        table = np.random.default_rng(1).permutation(self.num_pages).astype(np.int32).reshape(self.num_rows, -1)
        table[:, : self.shared // PAGE_SIZE] = table[0, : self.shared // PAGE_SIZE]
        num_tokens = self.num_rows * self.num_new
        positions = np.tile(np.arange(self.context - self.num_new, self.context, dtype=np.int32), self.num_rows)
        starts = np.arange(0, num_tokens + 1, self.num_new, dtype=np.int32)
        contexts = np.full(self.num_rows, self.context, np.int32)
        return RaggedBatch(np.full(num_tokens, 99, np.int32), positions, starts, contexts, (table,) * num_groups)


def fill(pages: KVPages) -> KVPages:
    """Something other than the one zero page that the system shows for memory nobody wrote to."""
    for array in vars(pages).values():
        if array is not None:
            array[:] = 1 if array.dtype == np.int8 else 0.01
    return pages


def compile_for(model: Model, kernels: CpuKernels, kv_cache_type: KVCacheType, shape: Shape) -> Program:
    config = model.config
    layers = [
        fill(kernels.new_pages(shape.num_pages, PAGE_SIZE, config.num_kv_heads, config.head_dim, kv_cache_type))
        for _ in range(config.num_layers)
    ]
    recorder = kernels.recorder(layers)
    batch = recorder.batch()
    hidden = model.forward(recorder, batch, layers)
    logits = model.logits(recorder, recorder.take_rows(hidden, batch.token_ids))
    return kernels.compile(recorder, logits, shape.num_rows * shape.num_new)


def measure(program: Program, batch: RaggedBatch, repeats: int) -> np.ndarray:
    last = batch.row_starts[1:] - 1
    program.run(batch, last)
    samples = []
    for _ in range(repeats):
        times = program.measure()
        program.run(batch, last)
        samples.append(times.copy() / 1e6)
    return np.median(samples, axis=0)


def shapes(contexts: list[int], only: list[str]) -> list[Shape]:
    found = []
    if "one" in only:
        found += [Shape(1, 1, context) for context in contexts]
    if "many" in only:
        found += [Shape(32, 1, context) for context in contexts if context <= 2048]
    if "prompt" in only:
        found += [Shape(1, 512, context) for context in contexts if context >= 512]
    if "shared" in only:
        found += [Shape(32, 1, 2112), Shape(32, 1, 2112, 2048)]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--contexts", type=int, nargs="+", default=[128, 512, 2048, 8192])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--types", nargs="+", default=["f32", "f16", "int8"])
    parser.add_argument("--instructions", help="avx512, avx2 or scalar; the best of the machine if not given")
    parser.add_argument("--only", nargs="+", default=["one", "many", "prompt", "shared"])
    parser.add_argument("--repeats", type=int, default=7)
    args = parser.parse_args()
    print(machine())
    model = load_model(open_checkpoint(args.model))
    for num_threads in args.threads:
        kernels = CpuKernels(num_threads, args.instructions)
        rows = []
        for shape in shapes(args.contexts, args.only):
            for kind in args.types:
                program = compile_for(model, kernels, kind, shape)
                times = measure(program, shape.batch(len(model.cache_groups())), args.repeats)
                parts = [f"{times[operation]:.2f}" for operation in SHOWN]
                rows.append([shape.name, kind, *parts, f"{times[-1]:.2f}", f"{times.sum():.2f}"])
        title = f"{num_threads} thread(s), {kernels.instruction_set}, ms a step"
        print_table(title, ["rows x tokens", "type", *(o.name.lower() for o in SHOWN), "waiting", "all"], rows)


if __name__ == "__main__":
    main()
