"""Opens thousands of damaged copies of the test models and prints what became of them.

    python -m benchmarks.hostile_files --count 20000 --full 200

Run from the root of the repository. Each line is one file: mutants opened, mutants refused with a typed error, anything
else (must be 0), the most memory that a mutant took over the process's own, and the budget. A crash, or more than two
seconds of computing for one mutant, ends the run with the child's signal.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from pagoda.weights.store import ensure_model
from tests.weights.gguf_surgery import small_copy
from tests.weights.hostile import MAX_EXTRA_BYTES, Report, assert_harmless, run_batch
from tests.weights.small_files import small_safetensors, sparse_copy

BATCH = 1000
MODELS = ("smollm2", "gemma3-270m")


def run_batches(source: Path, kind: str, count: int, trace_every: int) -> list[Report]:
    batches = range(0, count, BATCH)
    target = f"tests.weights.hostile:open_{kind}"
    return [run_batch(source, target, seed, min(BATCH, count - seed), trace_every) for seed in batches]


def print_row(label: str, reports: list[Report]) -> None:
    for report in reports:
        assert_harmless(report)
    opened, refused = sum(r.num_opened for r in reports), sum(r.num_refused for r in reports)
    peak = max(max(r.peak_bytes, r.resident_bytes) for r in reports)
    other = sum(len(r.unexpected) for r in reports)
    budget = reports[0].file_bytes + MAX_EXTRA_BYTES
    print(f"{label:28} {opened:8} {refused:8} {other:6} {peak / 2**20:10.1f} {budget / 2**20:10.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Open damaged copies of the test models.")
    parser.add_argument("--count", type=int, default=20_000, help="mutants of small copies, over the three files")
    parser.add_argument("--full", type=int, default=200, help="mutants of the full headers, over the two GGUF files")
    options = parser.parse_args()
    print(f"{'file':28} {'opened':>8} {'refused':>8} {'other':>6} {'peak MiB':>10} {'budget MiB':>10}")
    with tempfile.TemporaryDirectory() as folder:
        small = {f"{name} (small)": (small_copy(ensure_model(name)), "gguf") for name in MODELS}
        small["MiniLM-like safetensors"] = (small_safetensors(), "safetensors")
        for number, (label, (data, kind)) in enumerate(small.items()):
            source = Path(folder) / f"small-{number}"
            source.write_bytes(data)
            count = options.count * (number + 1) // len(small) - options.count * number // len(small)
            print_row(label, run_batches(source, kind, count, trace_every=1))
        for name in MODELS:
            source = sparse_copy(ensure_model(name), Path(folder) / name)
            print_row(f"{name} (full header)", run_batches(source, "gguf", options.full // len(MODELS), trace_every=20))


if __name__ == "__main__":
    main()
