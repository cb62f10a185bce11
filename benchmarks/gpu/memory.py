"""The memory ledger of a GPU beside what its owners hold and what the device has lost.

    python -m benchmarks.gpu.memory [--gpu-memory-utilization 0.9]

8B in bf16 and in fp8 with random weights. Before memory is read the engine has answered, drawn in every way and
captured the graphs of all sizes, so that the libraries have taken what they take.
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

from benchmarks.gpu.models import make_folder
from benchmarks.report import print_table
from pagoda import LLM, SamplingParams

MEBIBYTE = 1 << 20
MOST_ERROR = 0.02
EXACT = "to the byte"
SAMPLINGS = (
    SamplingParams(temperature=0, max_tokens=4, ignore_eos=True, detokenize=False),
    SamplingParams(temperature=1, max_tokens=4, ignore_eos=True, detokenize=False),
    SamplingParams(temperature=1, top_p=0.9, top_k=40, max_tokens=4, ignore_eos=True, detokenize=False),
    SamplingParams(temperature=1, repetition_penalty=1.1, max_tokens=4, ignore_eos=True, detokenize=False),
)


def work(llm: LLM) -> None:
    prompts = [[10 + (31 * number + place) % 1000 for place in range(600)] for number in range(24)]
    for sampling in SAMPLINGS:
        llm.generate(prompts, sampling, use_tqdm=False)
    llm.engine.loop.executor.warm_up()  # type: ignore[attr-defined]
    torch.cuda.synchronize()


def measure(folder: Path, quantization: str, share: float) -> bool:
    """Whether every line is what was planned, and the device's loss within the limit."""
    start = time.perf_counter()
    settings: dict[str, Any] = {
        "max_num_seqs": 512,
        "max_num_batched_tokens": 8192,
        "block_size": 64,
        "gpu_memory_utilization": share,
        "quantization": quantization,
    }
    before = torch.cuda.mem_get_info()[0]
    with LLM(folder, device="cuda", load_format="dummy", **settings) as llm:
        work(llm)
        planned, allocated = llm.engine.memory.lines, llm.engine.loop.executor.allocated_bytes()
        lost = before - torch.cuda.mem_get_info()[0]
        in_torch = torch.cuda.memory_allocated()
        lengths = f"{llm.engine.memory.max_model_len} tokens a row, pages {llm.engine.memory.num_pages}"
    exact = {name: size for name, size in planned.items() if name != "libraries"}
    rows = [line(name, size, allocated[name]) for name, size in planned.items()]
    rows.append(line("tensors", sum(exact.values()), in_torch))
    rows.append(line("device", sum(planned.values()), lost))
    title = f"8B {quantization}: {lengths}, {time.perf_counter() - start:.0f} s"
    print_table(title, ["line", "planned MiB", "actual MiB", "actual / planned", ""], rows)
    error = abs(lost / sum(planned.values()) - 1)
    print(f"device total {error:.2%} from the plan (limit {MOST_ERROR:.0%})\n", flush=True)
    return all(allocated[name] == size for name, size in exact.items()) and error <= MOST_ERROR


def line(name: str, planned: int, actual: int) -> list[str]:
    ratio = f"{actual / planned:.4f}" if planned else "-"
    return [name, f"{planned / MEBIBYTE:,.1f}", f"{actual / MEBIBYTE:,.1f}", ratio, EXACT if planned == actual else ""]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--gpu-memory-utilization", type=float, default=0.9)
    share = parser.parse_args().gpu_memory_utilization
    is_met = True
    with tempfile.TemporaryDirectory() as parent:
        folder = make_folder("8b", Path(parent))
        for quantization in ("none", "fp8"):
            is_met &= measure(folder, quantization, share)
            gc.collect()
            torch.cuda.empty_cache()
    print("PASS" if is_met else "FAIL")
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
