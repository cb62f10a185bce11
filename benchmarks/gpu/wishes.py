"""What it costs a batch that its requests ask for more than the best token: penalties, masks, log-probabilities.

python -m benchmarks.gpu.wishes [--shape 8b|0.6b] [--requests 256] [--tokens 256] [--prompt 2048] [--repeats 2]

Every way is run with the same requests, in turns. `one of them` asks for a way in a single request of the batch: what
all others pay for it.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.gpu.models import SHAPES, make_folder
from benchmarks.report import print_table
from pagoda import LLM, SamplingParams
from pagoda.bench.workloads import decode256

WAYS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "temperature": {"temperature": 0.8},
    "top_p 0.95, top_k 50": {"temperature": 0.8, "top_p": 0.95, "top_k": 50},
    "5 log-probabilities": {"logprobs": 5},
    "penalties": {"presence_penalty": 0.5, "frequency_penalty": 0.2},
    "banned tokens and biases": {
        "banned_token_ids": tuple(range(50)),
        "logit_bias": {token: 1.0 for token in range(50, 400)},
    },
    "all of these": {
        "temperature": 0.8,
        "top_p": 0.95,
        "top_k": 50,
        "logprobs": 5,
        "repetition_penalty": 1.1,
        "banned_token_ids": (7,),
        "logit_bias": {5: 1.0},
    },
    "typical_p 0.9": {"temperature": 0.8, "typical_p": 0.9},
}
PROMPT_WAYS: dict[str, dict[str, Any]] = {
    "no scores": {},
    "of its tokens": {"prompt_logprobs": 0},
    "and the best 20": {"prompt_logprobs": 20},
}


def seconds_of(llm: LLM, prompts: list[Any], sampling: list[SamplingParams]) -> float:
    llm.reset_prefix_cache()
    start = time.perf_counter()
    outputs = llm.generate(prompts, sampling, use_tqdm=False)
    seconds = time.perf_counter() - start
    for output, wishes in zip(outputs, sampling, strict=True):
        [answer] = output.outputs
        assert len(answer.token_ids) == wishes.max_tokens
        assert (answer.logprobs is None) == (wishes.logprobs is None)
    return seconds


def sampling_of(num_requests: int, num_tokens: int, wishes: dict[str, Any], num_asking: int) -> list[SamplingParams]:
    common: dict[str, Any] = {"temperature": 0, "max_tokens": num_tokens, "ignore_eos": True, "detokenize": False}
    return [
        SamplingParams(**common | (wishes if number < num_asking else {}) | {"seed": number})
        for number in range(num_requests)
    ]


def step_seconds(
    llm: LLM, num_requests: int, num_tokens: int, repeats: int, prompt_tokens: int = 128, warm_ups: int = 1
) -> dict[tuple[str, int], float]:
    """By way and number of requests that ask for it: the least time of a decoding step."""
    requests = decode256(num_requests, llm.engine.loop.vocab_size)
    prompts = [request.prompt_token_ids[:prompt_tokens] for request in requests]
    found: dict[tuple[str, int], list[float]] = {}
    for turn in range(warm_ups + repeats):  # the first build kernels and graphs
        of_prompts = seconds_of(llm, prompts, sampling_of(num_requests, 1, {}, 0))
        for way, num_asking in itertools.product(WAYS, (num_requests, 1)):
            seconds = seconds_of(llm, prompts, sampling_of(num_requests, num_tokens, WAYS[way], num_asking))
            if turn >= warm_ups:
                found.setdefault((way, num_asking), []).append((seconds - of_prompts) / (num_tokens - 1))
    return {key: min(seconds) for key, seconds in found.items()}


def prompt_seconds(llm: LLM, num_tokens: int, repeats: int) -> dict[str, float]:
    """Of one prompt and the token after it, with and without scores: the least of some times."""
    [request] = decode256(1, llm.engine.loop.vocab_size)
    own = request.prompt_token_ids
    prompt = [own[place % len(own)] for place in range(num_tokens)]
    found = {}
    for name, wishes in PROMPT_WAYS.items():
        sampling = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True, detokenize=False, **wishes)
        found[name] = min(seconds_of(llm, [prompt], [sampling]) for _ in range(1 + repeats))
    return found


def table_of(found: dict[tuple[str, int], float], num_requests: int) -> list[list[str]]:
    plain = found["greedy", num_requests]
    return [
        [way, *(text for one in (found[way, num_requests], found[way, 1]) for text in texts_of(one, plain))]
        for way in WAYS
    ]


def texts_of(seconds: float, plain: float) -> tuple[str, str]:
    return f"{1e3 * seconds:.2f}", f"{seconds / plain:.3f}x"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=sorted(SHAPES), default="8b")
    parser.add_argument("--requests", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=256, help="of each answer")
    parser.add_argument("--prompt", type=int, default=2048, help="tokens of the prompt that is scored")
    parser.add_argument("--repeats", type=int, default=2, help="runs that count, of which the best is shown")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = make_folder(args.shape, Path(folder))
        sizes = {"max_model_len": 4096, "max_num_seqs": args.requests, "block_size": 64}
        with LLM(path, device="cuda", load_format="dummy", **sizes) as llm:
            found = step_seconds(llm, args.requests, args.tokens, args.repeats)
            of_prompt = prompt_seconds(llm, args.prompt, args.repeats)
    header = ["milliseconds a step", "all of them", "of greedy", "one of them", "of greedy"]
    title = f"{args.shape}: {args.requests} requests, 128 in, {args.tokens} out"
    print_table(title, header, table_of(found, args.requests))
    lines = [[way, *texts_of(seconds, of_prompt["no scores"])] for way, seconds in of_prompt.items()]
    print_table(f"{args.shape}: a prompt of {args.prompt:,} tokens", ["scores", "milliseconds", "of none"], lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
