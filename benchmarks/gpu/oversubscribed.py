"""Four times as many running requests as there are pages for: all of them finish, and no answer shows it.

    python -m benchmarks.gpu.oversubscribed [--requests 96]

A tiny float32 model with random weights, the same in both runs: once with pages for every row, once with a quarter of
what the rows need. Greedy answers must be the same, token by token. Where one differs, how far apart the two likeliest
tokens were is shown, and counts as a failure unless that is a near tie.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.models import LLAMA_8B, write_folder
from pagoda import LLM, RequestOutput, SamplingParams

TINY: dict[str, Any] = LLAMA_8B | {
    "vocab_size": 512,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "torch_dtype": "float32",
}
PAGE_SIZE = 16
OVERSUBSCRIBED = 4
NEAR_TIE = 1e-3


@dataclass(frozen=True)
class Work:
    num_requests: int = 96
    num_rows: int = 64
    max_model_len: int = 512
    prompt_lengths: tuple[int, int] = (100, 300)
    num_new: int = 200

    def prompts(self) -> list[list[int]]:
        draw = random.Random(7)
        lengths = [draw.randint(*self.prompt_lengths) for _ in range(self.num_requests)]
        return [[draw.randrange(TINY["vocab_size"]) for _ in range(length)] for length in lengths]

    def num_pages(self) -> int:
        """For the longest requests that can run at once."""
        lengths = sorted((len(prompt) + self.num_new for prompt in self.prompts()), reverse=True)
        return sum(-(-length // PAGE_SIZE) for length in lengths[: self.num_rows])


@dataclass(frozen=True)
class Outcome:
    num_whole: int
    num_wrong: int
    num_preemptions: int

    def is_met(self, work: Work) -> bool:
        return self.num_whole == work.num_requests and not self.num_wrong and self.num_preemptions > 0


def make_llm(folder: Path, work: Work, num_pages: int) -> LLM:
    torch.manual_seed(7)  # the same weights each time
    return LLM(
        folder,
        device="cuda",
        dtype="float32",
        load_format="dummy",
        max_model_len=work.max_model_len,
        max_num_seqs=work.num_rows,
        max_num_batched_tokens=max(work.num_rows, 512),
        block_size=PAGE_SIZE,
        num_pages=num_pages,
    )


def answer(llm: LLM, work: Work) -> list[RequestOutput]:
    sampling = SamplingParams(temperature=0, max_tokens=work.num_new, ignore_eos=True, detokenize=False)
    start = time.perf_counter()
    outputs = llm.generate(work.prompts(), sampling, use_tqdm=False)
    seconds = time.perf_counter() - start
    scheduler = llm.engine.loop.scheduler
    scheduler.check_integrity()
    num_held = sum(pool.num_used for pool in scheduler.cache.pools)
    print(
        f"{llm.engine.memory.num_pages[0]} pages: {len(outputs)} answers in {seconds:.1f} s, "
        f"{scheduler.board.num_preemptions} preemptions, {num_held} pages still held",
        flush=True,
    )
    assert num_held == 0, "pages leak"
    return outputs


def gap_after(llm: LLM, token_ids: list[int]) -> float:
    """How much likelier the likeliest next token is than the second."""
    sampling = SamplingParams(temperature=0, max_tokens=1, logprobs=2, ignore_eos=True, detokenize=False)
    [output] = llm.generate([token_ids], sampling, use_tqdm=False)
    [scores] = output.outputs[0].logprobs or []
    best, second = sorted((score.logprob for score in scores.values()), reverse=True)[:2]
    return best - second


def compare(llm: LLM, work: Work, free: list[RequestOutput], tight: list[RequestOutput]) -> int:
    """How many answers differ where there was no near tie."""
    num_wrong = 0
    for prompt, one, other in zip(work.prompts(), free, tight, strict=True):
        expected, found = list(one.outputs[0].token_ids), list(other.outputs[0].token_ids)
        if expected == found:
            continue
        place = next((i for i, (a, b) in enumerate(zip(expected, found, strict=False)) if a != b), len(found))
        gap = gap_after(llm, prompt + expected[:place])
        print(f"request {one.request_id} differs at token {place}: the two likeliest are {gap:.2e} apart")
        num_wrong += gap > NEAR_TIE or len(expected) != len(found)
    return num_wrong


def measure(parent: Path, work: Work) -> Outcome:
    folder = write_folder(TINY, parent / "tiny")
    with make_llm(folder, work, work.num_pages() // OVERSUBSCRIBED) as llm:
        tight = answer(llm, work)
        num_preemptions = llm.engine.loop.scheduler.board.num_preemptions
    del llm
    gc.collect()
    with make_llm(folder, work, work.num_pages()) as llm:
        num_wrong = compare(llm, work, answer(llm, work), tight)
    num_whole = sum(len(output.outputs[0].token_ids) == work.num_new for output in tight)
    return Outcome(num_whole, num_wrong, num_preemptions)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--requests", type=int, default=96)
    work = Work(num_requests=parser.parse_args().requests)
    with tempfile.TemporaryDirectory() as parent:
        found = measure(Path(parent), work)
    is_met = found.is_met(work)
    print(
        f"{found.num_whole} of {work.num_requests} answers whole, {found.num_wrong} wrong, "
        f"{found.num_preemptions} preemptions: {'PASS' if is_met else 'FAIL'}"
    )
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
