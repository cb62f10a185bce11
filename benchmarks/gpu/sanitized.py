"""Two hundred steps of a small model for compute-sanitizer: prompts in chunks, shared prefixes, all ways to draw,
weights and pages of every format.

compute-sanitizer --tool memcheck python -m benchmarks.gpu.sanitized
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.gpu.models import QWEN_06B, write_folder
from pagoda import LLM, SamplingParams

NUM_STEPS = 200
# Weights, and pages.
FORMATS = [("none", "auto"), ("fp8", "auto"), ("int8", "auto"), ("int4", "auto"), ("none", "fp8")]
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


def prompts() -> list[list[int]]:
    draw = random.Random(3)
    shared = [draw.randrange(10, 999) for _ in range(320)]
    alone = [[draw.randrange(10, 999) for _ in range(draw.randrange(1, 200))] for _ in range(12)]
    return alone + [shared + [draw.randrange(10, 999) for _ in range(5)] for _ in range(8)]


def main() -> int:
    ways = [
        {"temperature": 0},
        {"temperature": 0.8},
        {"temperature": 0.8, "top_k": 20},
        {"temperature": 0.9, "top_p": 0.8, "min_p": 0.05},
        {"temperature": 0, "repetition_penalty": 1.1, "presence_penalty": 0.2},
    ]
    num_steps = 0
    with tempfile.TemporaryDirectory() as folder:
        for quantization, kv_cache_type in FORMATS:
            llm = LLM(
                write_folder(SMALL, Path(folder)),
                device="cuda",
                load_format="dummy",
                quantization=quantization,
                kv_cache_type=kv_cache_type,
                max_model_len=512,
                max_num_seqs=16,
                max_num_batched_tokens=256,
                num_pages=60,
                block_size=64,
            )
            with llm:
                texts = prompts()
                sampling = [
                    SamplingParams(max_tokens=60, ignore_eos=True, detokenize=False, seed=number, **ways[number % 5])
                    for number in range(len(texts))
                ]
                outputs = llm.generate(texts, sampling, use_tqdm=False)
                assert all(len(output.outputs[0].token_ids) == 60 for output in outputs)
                num_steps += llm.engine.loop.counters.num_steps
    print(f"{num_steps} steps, {len(FORMATS) * len(texts)} requests, all answered in full")
    return 0 if num_steps >= NUM_STEPS else 1


if __name__ == "__main__":
    sys.exit(main())
