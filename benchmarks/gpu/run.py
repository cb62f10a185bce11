"""The table of a GPU beside vLLM and SGLang: checks kernels, runs the fixed workloads, prints each row with its peers.

python -m benchmarks.gpu.run [--check] [--rows 8b-single,8b-decode256,...] [--profile 8b-decode256] [--repeats 3]
                             [--warm-ups 1] [--deterministic] [--vllm FILE]

The peers' figures are the published ones; `--vllm` takes vLLM's from a run of `benchmarks.gpu.vllm_rows` on this card.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.energy import EnergyMeter, watts
from benchmarks.gpu.models import make_folder
from benchmarks.gpu.profile import profiled
from benchmarks.gpu.table import Row, wanted_rows, with_vllm
from benchmarks.report import print_table
from pagoda import LLM
from pagoda.bench.offline import OfflineBench, OfflineRun
from pagoda.bench.workloads import FIXED

# Workloads whose batches shrink one by one; the graphs of others are few and captured on the way.
MANY_SIZES = ("seed", "nano")


def make_llm(shape: str, quantization: str, folder: Path, args: argparse.Namespace) -> LLM:
    return LLM(
        make_folder(shape, folder),
        device="cuda",
        load_format="dummy",
        quantization=quantization,
        max_model_len=4096,
        max_num_seqs=args.seqs,
        max_num_batched_tokens=args.tokens,
        block_size=args.page,
        gpu_memory_utilization=0.85,
        deterministic=args.deterministic,
        kv_cache_type=args.kv,
    )


def measure(bench: OfflineBench, row: Row, num_before: int, repeats: int, meter: EnergyMeter) -> tuple[OfflineRun, str]:
    """The best of the runs that count, and its watts. Those before build kernels and graphs, which the peers do as they
    start."""
    requests = FIXED[row.work]()
    runs: list[tuple[OfflineRun, str]] = []
    for _ in range(num_before + repeats):
        before = meter.joules()
        run = bench.run(requests)
        if run.was_interrupted:
            raise KeyboardInterrupt
        assert run.num_output_tokens == sum(request.max_tokens for request in requests)
        runs.append((run, watts(before, meter.joules(), run.seconds)))
    return min(runs[num_before:], key=lambda run: run[0].seconds)


def table_line(row: Row, found: OfflineRun, power: str) -> list[str]:
    value = 1e3 * found.seconds if row.is_latency else found.num_output_tokens / found.seconds
    peer = min(row.vllm, row.sglang) if row.is_latency else max(row.vllm, row.sglang)
    ratio = peer / value if row.is_latency else value / peer
    is_met = value <= row.goal if row.is_latency else value >= row.goal
    numbers = [f"{number:,.1f}" for number in (value, row.vllm, row.sglang, row.limit, row.goal)]
    costs = found.costs
    waits = f"{100 * (costs.device_wait_share or 0):.1f} %"
    times = [f"{1e3 * costs.step_seconds:.2f}", f"{1e6 * costs.host_seconds:.0f}", waits, power]
    return [row.name, *numbers, f"{ratio:.2f}x", "met" if is_met else "missed", *times]


HEADER = ["row", "pagoda", "vLLM", "SGLang", "limit", "goal", "ratio", "", "step ms", "host us", "GPU waits", "W"]


def check() -> int:
    import pytest

    return int(pytest.main(["-q", "-x", "tests/kernels/cuda", "tests/executor/cuda", "-p", "no:cacheprovider"]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="all", help="names from the table, with commas")
    parser.add_argument("--check", action="store_true", help="hold every kernel against its twin first")
    parser.add_argument("--profile", default="", help="rows to look into, kernel by kernel")
    parser.add_argument("--before", type=int, default=40, help="steps before those that are looked into")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each row, of which the best counts")
    parser.add_argument("--warm-ups", type=int, default=1, help="runs of each row before those")
    parser.add_argument("--tokens", type=int, default=8192, help="max_num_batched_tokens")
    parser.add_argument("--seqs", type=int, default=512, help="max_num_seqs")
    parser.add_argument("--page", type=int, default=64, help="tokens in a page")
    parser.add_argument("--kv", choices=("auto", "fp8"), default="auto", help="what keys and values are kept in")
    parser.add_argument("--deterministic", action="store_true", help="what the deterministic mode costs")
    parser.add_argument("--vllm", type=Path, help="what benchmarks.gpu.vllm_rows found on this card")
    args = parser.parse_args()
    if args.check and (status := check()):
        return status
    wanted = with_vllm(wanted_rows(args.rows), args.vllm)
    lines: list[list[str]] = []
    made: tuple[str, str] | None = None
    meter = EnergyMeter()
    llm: Any = None
    bench: Any = None
    with tempfile.TemporaryDirectory() as folder:
        for row in wanted:
            if made != (row.shape, row.quantization):
                if llm is not None:
                    llm.close()
                    llm = bench = None
                    gc.collect()
                    torch.cuda.empty_cache()
                made = (row.shape, row.quantization)
                start = time.perf_counter()
                llm = make_llm(row.shape, row.quantization, Path(folder), args)
                built = time.perf_counter() - start
                if any(one.work in MANY_SIZES for one in wanted):
                    llm.engine.loop.executor.warm_up()
                print(
                    f"{row.shape} {row.quantization}: built in {built:.1f} s, graphs in "
                    f"{time.perf_counter() - start - built:.1f} s, pages {llm.engine.memory.num_pages}",
                    flush=True,
                )
                bench = OfflineBench(llm)
            lines.append(table_line(row, *measure(bench, row, args.warm_ups, args.repeats, meter)))
            print("  ".join(lines[-1]), flush=True)
            if row.name in args.profile.split(","):
                profiled(llm, row.work, args.before)
    print_table("Tokens a second (ttft1k: milliseconds)", HEADER, lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
