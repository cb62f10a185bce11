"""A real model in bf16 on the card: how far its logits lie from float32, beside transformers' own bf16.

python -m benchmarks.gpu.precision SmolLM2-135M-Instruct.Q4_1.gguf [--tokens 512]

Both oracles are transformers' reading of the same file, on the same card: float32 without TF32, and bf16.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.cpu.prose import language_reference
from benchmarks.report import print_table
from pagoda import LLM, SamplingParams
from pagoda.executor.cuda import prompt_scores


def of_transformers(path: Path, token_ids: list[int], dtype: torch.dtype) -> np.ndarray:
    from transformers import AutoModelForCausalLM

    torch.backends.cuda.matmul.allow_tf32 = False
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=dtype).to("cuda").eval()
    with torch.inference_mode():
        logits = model(torch.tensor([token_ids], device="cuda")).logits[0]
    return logits.float().cpu().numpy()


@contextmanager
def captured_logits() -> Iterator[list[np.ndarray]]:
    """What the executor scores prompts by."""
    captured: list[np.ndarray] = []
    usual = prompt_scores.score_tokens

    def keep(scores: torch.Tensor, logits: torch.Tensor, *others: Any) -> None:
        captured.append(logits.float().cpu().numpy())
        usual(scores, logits, *others)

    prompt_scores.score_tokens = keep
    try:
        yield captured
    finally:
        prompt_scores.score_tokens = usual


def of_pagoda(path: Path, token_ids: list[int], dtype: str, kv_cache_type: str = "auto") -> np.ndarray:
    sizes = {"max_model_len": 2048, "max_num_seqs": 64, "block_size": 64, "num_pages": 256}
    with LLM(path, device="cuda", dtype=dtype, kv_cache_type=kv_cache_type, **sizes) as llm:
        sampling = SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=0)
        with captured_logits() as captured:
            llm.generate([token_ids], sampling, use_tqdm=False)
    return np.concatenate(captured)


def distances(logits: np.ndarray, exact: np.ndarray) -> list[float]:
    """Root mean square and largest difference of logits, and mean divergence of distributions, in nats."""
    difference = logits.astype(np.float64) - exact
    log_p, log_q = (x - x.max(1, keepdims=True) for x in (exact.astype(np.float64), logits.astype(np.float64)))
    log_p, log_q = (x - np.log(np.exp(x).sum(1, keepdims=True)) for x in (log_p, log_q))
    divergence = (np.exp(log_p) * (log_p - log_q)).sum(1).mean()
    return [float(np.sqrt((difference**2).mean())), float(np.abs(difference).max()), float(divergence)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a GGUF file")
    parser.add_argument("--tokens", type=int, default=512)
    args = parser.parse_args()
    with LLM(args.model, device="cpu", kernels="reference", max_model_len=64) as llm:
        token_ids = llm.get_tokenizer().encode(language_reference())[: args.tokens]
    exact = of_transformers(args.model, token_ids, torch.float32)[:-1]
    found = {
        "transformers bf16": of_transformers(args.model, token_ids, torch.bfloat16)[:-1],
        "pagoda bf16": of_pagoda(args.model, token_ids, "bfloat16"),
        "pagoda bf16, keys and values in fp8": of_pagoda(args.model, token_ids, "bfloat16", "fp8"),
        "pagoda float32": of_pagoda(args.model, token_ids, "float32"),
    }
    by_name = {name: distances(logits, exact) for name, logits in found.items()}
    lines = [[name, *(f"{value:.5f}" for value in values)] for name, values in by_name.items()]
    title = f"{args.model.name}: {len(exact)} tokens against transformers in float32"
    print_table(title, ["", "logits, rms", "largest", "KL, nats"], lines)
    return 0 if by_name["pagoda bf16"][0] <= by_name["transformers bf16"][0] else 1


if __name__ == "__main__":
    sys.exit(main())
