"""What a step with prompts costs the host and the GPU, launched call by call and as graphs.

    python -m benchmarks.gpu.prompt_steps [--models 8b,8b-fp8,0.6b] [--repeats 5]

"plain" lets Triton bind the arguments of every launch anew, "eager" launches what it has built, "captured" replays
graphs between attentions (one graph for a single prompt). The first step of a case builds kernels; the first captured
one also pays for the capture, behind its own launches. All weights are random: under 90 seconds on an H200.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from benchmarks.gpu.run import make_llm
from benchmarks.report import print_table
from pagoda import SamplingParams
from pagoda.core.plan import RowPayload, RowStart, StepPlan
from pagoda.executor.cuda import prompt_graphs
from pagoda.kernels.cuda import quick_launch

MODELS = {"8b": ("8b", "none"), "8b-fp8": ("8b", "fp8"), "0.6b": ("0.6b", "none")}
NEVER = 1 << 30
CONTEXT = 300  # of a row that decodes
GREEDY = SamplingParams(temperature=0)


@dataclass(frozen=True)
class Case:
    name: str
    num_decoding: int
    prompts: tuple[int, ...]

    @property
    def num_tokens(self) -> np.ndarray:
        return np.array([*[1] * self.num_decoding, *self.prompts], np.int32)


CASES = [
    Case("1 prompt of 1,024", 0, (1024,)),
    Case("1 prompt of 700, as 768", 0, (700,)),
    Case("16 prompts, 8,192 tokens", 0, (512,) * 16),
    Case("256 decode, 1 prompt of 512", 256, (512,)),
]


class Bench:
    """Plans made by hand for an executor whose rows begin anew before each step."""

    def __init__(self, executor: Any, vocab_size: int, page_size: int) -> None:
        self._executor = executor
        self._page_size = page_size
        self._ids = np.random.default_rng(0).integers(0, vocab_size, 4096).astype(np.int32)
        self._numbers = itertools.count()

    def step(self, case: Case) -> tuple[float, float, float]:
        """Milliseconds: of the host to launch it, from its first kernel to its last, until its tokens are there."""
        self._begin_rows(case)
        rows = np.arange(len(case.num_tokens), dtype=np.int32)
        plan = self._plan((), (), rows, case.num_tokens)
        torch.cuda.synchronize()
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        start = time.perf_counter()
        marks[0].record()
        self._executor.submit(plan, ())
        host = time.perf_counter() - start
        marks[1].record()
        self._executor.collect()
        whole = time.perf_counter() - start
        torch.cuda.synchronize()
        return 1e3 * host, marks[0].elapsed_time(marks[1]), 1e3 * whole

    def _begin_rows(self, case: Case) -> None:
        """In a plan of their own, which computes nothing."""
        pages, starts, payloads = itertools.count(), [], []
        for row, count in enumerate(case.num_tokens.tolist()):
            length = CONTEXT if row < case.num_decoding else count
            table = tuple(itertools.islice(pages, -(-(length + 1) // self._page_size)))
            sequence = next(self._numbers)
            starts.append(RowStart(row, sequence, str(sequence), 0, length - count, (table,)))
            payloads.append(RowPayload(sequence, self._ids[:length], length, GREEDY, 0))
        nothing = np.zeros(0, np.int32)
        plan = self._plan(tuple(range(len(starts))), tuple(starts), nothing, nothing)
        self._executor.submit(plan, payloads)
        self._executor.collect()

    def _plan(
        self, stopped: tuple[int, ...], started: tuple[RowStart, ...], rows: np.ndarray, num_tokens: np.ndarray
    ) -> StepPlan:
        return StepPlan(
            step_id=next(self._numbers),
            stopped=stopped,
            page_copies=(),
            started=started,
            table_updates=(),
            rows=rows,
            sequences=rows.astype(np.int64),
            num_tokens=num_tokens,
            num_drafts=np.zeros_like(rows),
            draws=np.ones(len(rows), np.bool_),
        )


def measured(bench: Bench, case: Case, repeats: int) -> tuple[list[float], list[float]]:
    """The first step, and the median of the later ones."""
    first = bench.step(case)
    later = [bench.step(case) for _ in range(repeats)]
    return list(first), [statistics.median(column) for column in zip(*later, strict=True)]


def lines_of(bench: Bench, case: Case, repeats: int) -> list[list[str]]:
    free = torch.cuda.mem_get_info()[0]
    with mock.patch.object(prompt_graphs, "STEPS_BEFORE_CAPTURE", NEVER):
        with mock.patch.object(quick_launch, "kinds_of", lambda *_: None):
            plain = measured(bench, case, repeats)
        eager = measured(bench, case, repeats)
    captured = measured(bench, case, repeats)
    taken = (free - torch.cuda.mem_get_info()[0]) / 2**20
    found = {"plain": plain, "eager": eager, "captured": captured}
    lines = [
        [case.name, name, *(f"{first:.2f}" for first in firsts), *(f"{later:.2f}" for later in laters)]
        for name, (firsts, laters) in found.items()
    ]
    lines[-1].append(f"{taken:.0f}")
    return lines


HEADER = ["step", "launched", "first: host ms", "GPU ms", "all ms", "later: host ms", "GPU ms", "all ms", "MiB taken"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=8192, help="max_num_batched_tokens")
    parser.add_argument("--seqs", type=int, default=512, help="max_num_seqs")
    parser.add_argument("--page", type=int, default=64, help="tokens in a page")
    parser.set_defaults(deterministic=False)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name in args.models.split(","):
            shape, quantization = MODELS[name]
            llm = make_llm(shape, quantization, Path(folder), args)
            loop = llm.engine.loop
            bench = Bench(loop.executor, loop.vocab_size, args.page)
            lines = [line for case in CASES for line in lines_of(bench, case, args.repeats)]
            print_table(name, HEADER, [line + [""] * (len(HEADER) - len(line)) for line in lines])
            llm.close()
            del llm, loop, bench
            gc.collect()
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
