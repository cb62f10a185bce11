"""From exec to the first token: 8B bf16 with random weights, with an empty compile cache and then with the warm one.

    python -m benchmarks.gpu.start [--shape 8b] [--prompt-tokens 128] [--repeats 1]

Each start is a process of its own. It prints its phases: the interpreter, imports, the device's context, weights and
pages, then the first token, and of that what building kernels took. The tokens after the first show what was put off:
the second waits for the kernels of decoding, the third for the capture of its graph.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.report import print_table

GOALS = {"empty": 15.0, "warm": 8.0}
PHASES = ("interpreter", "imports", "context", "weights", "kernels", "rest", "first token", "second", "third", "fourth")
CHILD_SECONDS = 120


def child(folder: Path, num_tokens: int, start: float) -> dict[str, float]:
    marks = {"interpreter": time.monotonic() - start}
    import torch
    import triton

    from pagoda import LLM, SamplingParams
    from pagoda.executor.cuda import build  # noqa: F401 - with everything below it

    marks["imports"] = time.monotonic() - start
    torch.cuda.mem_get_info()
    marks["context"] = time.monotonic() - start
    built: list[float] = []

    def listen(*, times: Any, cache_hit: bool, **_: Any) -> None:
        built.append(times.total / 1e6)

    triton.knobs.compilation.listener = listen
    settings = {"max_model_len": 4096, "max_num_seqs": 512, "max_num_batched_tokens": 8192, "block_size": 64}
    with LLM(folder, device="cuda", load_format="dummy", gpu_memory_utilization=0.9, **settings) as llm:
        torch.cuda.synchronize()
        marks["weights"] = time.monotonic() - start
        sampling = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True, detokenize=False)
        came: list[float] = []
        for output in llm.stream([10 + place % 1000 for place in range(num_tokens)], sampling):
            if output.outputs and output.outputs[0].token_ids and len(output.outputs[0].token_ids) > len(came):
                came.append(time.monotonic() - start)
                if len(came) == 1:
                    kernels, num_kernels = sum(built), len(built)
    names = ("first token", "second", "third", "fourth")
    return {
        **_lengths(marks),
        "kernels": kernels,
        "num_kernels": num_kernels,
        "rest": came[0] - marks["weights"] - kernels,
        **dict(zip(names, [came[0], *(b - a for a, b in zip(came, came[1:], strict=False))], strict=False)),
    }


def _lengths(marks: dict[str, float]) -> dict[str, float]:
    """From points in time to what lies between them."""
    before = 0.0
    lengths = {}
    for name, mark in marks.items():
        lengths[name], before = mark - before, mark
    return lengths


def start_once(folder: Path, cache: str, num_tokens: int) -> dict[str, float]:
    environment = os.environ | {"TRITON_CACHE_DIR": cache}
    command = [sys.executable, "-m", "benchmarks.gpu.start", "--child", str(folder), str(num_tokens)]
    start = time.monotonic()  # the same clock in every process
    run = subprocess.run(
        [*command, repr(start)], env=environment, capture_output=True, text=True, timeout=CHILD_SECONDS, check=False
    )
    if run.returncode:
        raise SystemExit(f"the process failed:\n{run.stderr}")
    found: dict[str, float] = json.loads(run.stdout.splitlines()[-1])
    return found


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        folder, num_tokens, begin = sys.argv[2:]
        print(json.dumps(child(Path(folder), int(num_tokens), float(begin))))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="8b")
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=1, help="starts with the warm cache")
    args = parser.parse_args()
    from benchmarks.gpu.models import make_folder

    rows, is_met = [], True
    with tempfile.TemporaryDirectory() as parent:
        folder = make_folder(args.shape, Path(parent))
        cache = str(Path(parent) / "cache")
        for name in ("empty", *["warm"] * args.repeats):
            found = start_once(folder, cache, args.prompt_tokens)
            is_met &= found["first token"] <= GOALS[name]
            rows.append([name, *(f"{found[phase]:.2f}" for phase in PHASES), f"{GOALS[name]:.0f}"])
            print(f"{name}: {found['first token']:.2f} s, {found['num_kernels']:.0f} kernels", flush=True)
    print_table("seconds; the phases up to `rest` add up to the first token", ["cache", *PHASES, "goal"], rows)
    print("PASS" if is_met else "FAIL")
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
