"""Two hundred steps of small models for compute-sanitizer: prompts in chunks, shared prefixes, all ways to draw,
weights and pages of every format; windows over pages smaller than a tile, with rows that are pushed back.

compute-sanitizer --tool memcheck python -m benchmarks.gpu.sanitized [--runs 0 5 6]
compute-sanitizer --tool memcheck --padding 8192 python -m benchmarks.gpu.sanitized --apart

`--apart`: every tensor has memory of its own, and with padding a read beside it shows even where another one lies.
Nothing can be captured as a graph then.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.gpu.models import QWEN_06B, write_folder
from pagoda import LLM, SamplingParams

NUM_STEPS = 200
NUM_TOKENS = 60
SMALL: dict[str, Any] = {
    **QWEN_06B,
    "vocab_size": 1000,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
}
WINDOWED = {**SMALL, "architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 40}


class Run(NamedTuple):
    """An engine: its model, its weights, and its pages."""

    config: dict[str, Any] = SMALL
    quantization: str = "none"
    kv_cache_type: str = "auto"
    page_size: int = 64
    num_pages: int = 60


RUNS = [
    Run(),
    Run(quantization="fp8"),
    Run(quantization="int8"),
    Run(quantization="int4"),
    Run(kv_cache_type="fp8"),
    Run(page_size=16, num_pages=70),
    Run(WINDOWED, page_size=16, num_pages=28),
    Run(WINDOWED, kv_cache_type="fp8", page_size=16, num_pages=28),
]


def prompts() -> list[list[int]]:
    draw = random.Random(3)
    shared = [draw.randrange(10, 999) for _ in range(320)]
    alone = [[draw.randrange(10, 999) for _ in range(draw.randrange(1, 200))] for _ in range(12)]
    return alone + [shared + [draw.randrange(10, 999) for _ in range(5)] for _ in range(8)]


def launch_apart(llm: LLM) -> None:
    """No graphs: torch cannot make a tensor with memory of its own while it captures."""
    executor: Any = llm.engine.loop.executor
    executor._graphs._captures = executor._prompt_graphs._captures = False


def steps_of(run: Run, folder: Path, are_apart: bool) -> tuple[int, int]:
    """Steps, and rows that were pushed back."""
    ways: list[dict[str, Any]] = [
        {"temperature": 0},
        {"temperature": 0.8},
        {"temperature": 0.8, "top_k": 20},
        {"temperature": 0.9, "top_p": 0.8, "min_p": 0.05},
        {"temperature": 0, "repetition_penalty": 1.1, "presence_penalty": 0.2, "logprobs": 4},
        {
            "temperature": 0.7,
            "logit_bias": {5: 2.0, 999: -3.0},
            "min_tokens": 20,
            "banned_token_ids": (7, 8),
            "top_k": 9,
        },
        {"temperature": 0.7, "typical_p": 0.9, "frequency_penalty": 0.3, "logprobs": 0},
    ]
    llm = LLM(
        write_folder(run.config, folder),
        device="cuda",
        load_format="dummy",
        quantization=run.quantization,
        kv_cache_type=run.kv_cache_type,
        max_model_len=512,
        max_num_seqs=16,
        max_num_batched_tokens=256,
        num_pages=run.num_pages,
        block_size=run.page_size,
    )
    with llm:
        if are_apart:
            launch_apart(llm)
        texts = prompts()
        sampling = [
            SamplingParams(max_tokens=NUM_TOKENS, ignore_eos=True, detokenize=False, seed=number, **way)
            for number, way in zip(range(len(texts)), itertools.cycle(ways), strict=False)
        ]
        outputs = llm.generate(texts, sampling, use_tqdm=False)
        assert all(len(output.outputs[0].token_ids) == NUM_TOKENS for output in outputs)
        loop = llm.engine.loop
        return loop.counters.num_steps, loop.scheduler.board.num_preemptions


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--apart", action="store_true", help="memory of its own for every tensor")
    everything = range(len(RUNS))
    parser.add_argument("--runs", type=int, nargs="+", choices=everything, default=[*everything], help="some of RUNS")
    args = parser.parse_args()
    runs = [RUNS[number] for number in args.runs]
    if args.apart:
        os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"  # read when the first tensor is made
    with tempfile.TemporaryDirectory() as folder:
        found = [steps_of(run, Path(folder), args.apart) for run in runs]
    num_steps, num_preemptions = (sum(counts) for counts in zip(*found, strict=True))
    num_requests = len(runs) * len(prompts())
    print(f"{num_steps} steps, {num_requests} requests, {num_preemptions} pushed back, all answered in full")
    are_all = len(set(args.runs)) == len(RUNS)
    return int(are_all and (num_steps < NUM_STEPS or not num_preemptions))


if __name__ == "__main__":
    sys.exit(main())
