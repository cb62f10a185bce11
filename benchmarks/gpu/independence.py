"""Whether the deterministic mode holds on the GPU at hand: real shapes, random weights, bits compared.

python -m benchmarks.gpu.independence [--shape 8b|0.6b] [--quantization none|fp8] [--skip-engine]
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks.gpu.kernels import MATRICES, SCALE, paged
from benchmarks.gpu.models import SHAPES, make_folder
from benchmarks.report import print_table
from pagoda import LLM, SamplingParams
from pagoda.kernels.cuda.fixed_attention import fixed_attention, split_workspace
from pagoda.kernels.cuda.fixed_linear import fixed_linear, fixed_workspace
from tests.executor.cuda.logit_book import LogitBook, WatchedExecutor

ROW_COUNTS = (1, 8, 16, 17, 32, 33, 64, 65, 128, 129, 256, 257, 512, 1024)
NUM_REQUESTS = 64
NUM_ALONE = 6  # of them, one at a time as well
NUM_TOKENS = 24


def compare_products(shape: str, quantization: str) -> Iterator[list[str]]:
    """Every row of x in a batch of 1,100 against the same row among fewer."""
    for name, (num_out, num_in) in MATRICES[shape.upper()].items():
        dtype = torch.float8_e4m3fn if quantization == "fp8" and name != "head" else torch.bfloat16
        x, weight = (torch.randn((count, num_in), device="cuda").to(dtype) for count in (1100, num_out))
        workspace = fixed_workspace([weight], "cuda")
        whole = torch.empty((len(x), num_out), device="cuda", dtype=torch.bfloat16)
        fixed_linear(whole, x, weight, workspace)
        differing = []
        for count in ROW_COUNTS:
            out = torch.empty((count, num_out), device="cuda", dtype=torch.bfloat16)
            fixed_linear(out, x[:count], weight, workspace)
            if not torch.equal(out, whole[:count]):
                differing.append(f"{count} rows: {int((out != whole[:count]).sum()):,}")
        yield [f"product {name}", f"{len(ROW_COUNTS)} numbers of rows", "; ".join(differing) or "none"]


def compare_attention(shape: str) -> list[str]:
    """A prompt of 3,000 tokens at once against its chunks and its tokens one by one."""
    length, num_heads = 3000, SHAPES[shape]["num_attention_heads"]
    keys, values, table = paged(1, length, 8, 128)
    queries = torch.randn((length, num_heads, 128), device="cuda", dtype=torch.bfloat16)
    workspace = split_workspace(1, num_heads, 8, 128, length, "cuda")

    def attend(first: int, last: int, *apart: object) -> torch.Tensor:
        out = torch.empty_like(queries[first:last])
        starts, lens = (torch.tensor(n, device="cuda", dtype=torch.int32) for n in ([0, last - first], [last]))
        fixed_attention(out, queries[first:last], keys, values, table, starts, lens, SCALE, 0, *apart)
        return out

    whole = attend(0, length)
    chunks = [(0, 5), (5, 700), (700, 1037), (1037, 2990), (2990, 3000)]
    differing = [str(chunk) for chunk in chunks if not torch.equal(attend(*chunk), whole[slice(*chunk)])]
    positions = (0, 63, 64, 511, 512, 1500, 2999)
    for position, apart in ((position, apart) for position in positions for apart in ((), (workspace, 6))):
        if not torch.equal(attend(position, position + 1, *apart), whole[position : position + 1]):
            differing.append(f"{position}{' apart' if apart else ''}")
    return ["attention", f"{len(chunks)} chunks, {len(positions)} tokens twice", "; ".join(differing) or "none"]


def prompts() -> list[list[int]]:
    """Half of them begin alike, so that pages are shared."""
    rng = random.Random(7)
    stem = [rng.randrange(10, 100000) for _ in range(300)]
    return [
        (stem if index % 2 else []) + [rng.randrange(10, 100000) for _ in range(rng.randint(50, 700))]
        for index in range(NUM_REQUESTS)
    ]


def generate(llm: LLM, asked: list[list[int]]) -> list[list[int]]:
    sampling = SamplingParams(temperature=0, max_tokens=NUM_TOKENS, ignore_eos=True, detokenize=False)
    return [list(output.outputs[0].token_ids) for output in llm.generate(asked, sampling, use_tqdm=False)]


def compare_engines(folder: Path, quantization: str) -> Iterator[list[str]]:
    """Some requests alone, uncached and unchunked, against all of them together in large and in small chunks."""
    asked, book = prompts(), LogitBook()
    alone: list[list[int]] = []
    for chunk in (4096, 333):
        torch.manual_seed(1)  # the same weights
        with LLM(
            folder,
            device="cuda",
            load_format="dummy",
            quantization=quantization,
            deterministic=True,
            max_model_len=2048,
            max_num_seqs=NUM_REQUESTS,
            max_num_batched_tokens=chunk,
            gpu_memory_utilization=0.6,
        ) as llm:
            loop = llm.engine.loop
            loop.executor = WatchedExecutor(loop.executor, book)
            if not alone:
                for prompt in asked[:NUM_ALONE]:
                    alone += generate(llm, [prompt])
                    llm.reset_prefix_cache()
            before = book.num_repeated, len(book.differing)
            together = generate(llm, asked)
        num_answers = sum(one != other for one, other in zip(alone, together, strict=False))
        yield [
            f"{NUM_REQUESTS} together, chunks of {chunk:,}",
            f"{book.num_repeated - before[0]:,} logits, {NUM_ALONE} answers",
            f"{len(book.differing) - before[1]:,} logits, {num_answers} answers",
        ]
        del llm, loop
        gc.collect()
        torch.cuda.empty_cache()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", default="8b", choices=SHAPES)
    parser.add_argument("--quantization", default="none", choices=["none", "fp8"])
    parser.add_argument("--skip-engine", action="store_true", help="kernels only")
    args = parser.parse_args()
    start = time.perf_counter()
    torch.manual_seed(1)
    lines = [*compare_products(args.shape, args.quantization), compare_attention(args.shape)]
    if not args.skip_engine:
        with tempfile.TemporaryDirectory() as folder:
            lines += compare_engines(make_folder(args.shape, Path(folder)), args.quantization)
    print_table(f"{args.shape}, {args.quantization}: bits that differ", ["what", "compared", "differing"], lines)
    print(f"{time.perf_counter() - start:.0f} s")
    return int(any(not line[2].startswith(("none", "0 logits, 0")) for line in lines))


if __name__ == "__main__":
    sys.exit(main())
