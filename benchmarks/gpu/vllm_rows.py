"""The rows of `benchmarks.gpu.run` by vLLM, on the card at hand: the same token ids, submitted in the same way.

python -m benchmarks.gpu.vllm_rows [--rows 8b-single,8b-decode256,...] [--repeats 2] [--json vllm.json]
python -m benchmarks.gpu.run --vllm vllm.json

vLLM runs with its defaults but for the length, the share of memory and the random weights; its prefix cache is cleared
before each run. Needs `pip install vllm` beside torch; nothing of Pagoda but its workloads is imported.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
import time
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.gpu.models import make_folder
from benchmarks.gpu.table import Row, wanted_rows
from pagoda.bench.workloads import FIXED


def make_vllm(row: Row, folder: Path) -> Any:
    from vllm import LLM

    return LLM(
        model=str(make_folder(row.shape, folder)),
        load_format="dummy",
        skip_tokenizer_init=True,
        max_model_len=4096,
        max_num_seqs=512,
        gpu_memory_utilization=0.85,
        quantization=None if row.quantization == "none" else row.quantization,
    )


def seconds_of(llm: Any, row: Row) -> tuple[float, int]:
    """Of a run of the row's work, and the tokens of its answers."""
    from vllm import SamplingParams

    requests = FIXED[row.work]()
    prompts = [{"prompt_token_ids": request.prompt_token_ids} for request in requests]
    sampling = [
        SamplingParams(temperature=0, max_tokens=request.max_tokens, ignore_eos=True, detokenize=False)
        for request in requests
    ]
    llm.reset_prefix_cache()
    start = time.perf_counter()
    outputs = llm.generate(prompts, sampling, use_tqdm=False)
    seconds = time.perf_counter() - start
    num_tokens = sum(len(output.outputs[0].token_ids) for output in outputs)
    assert num_tokens == sum(request.max_tokens for request in requests)
    return seconds, num_tokens


def measure(llm: Any, row: Row, repeats: int) -> float:
    """Tokens a second, or milliseconds, of the best run."""
    seconds, num_tokens = min(seconds_of(llm, row) for _ in range(1 + repeats))
    return 1e3 * seconds if row.is_latency else num_tokens / seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="all", help="names from the table, with commas")
    parser.add_argument("--repeats", type=int, default=2, help="runs of each row after its first; the best counts")
    parser.add_argument("--json", type=Path, help="where figures are written, by name of the row")
    args = parser.parse_args()
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for _, group in groupby(wanted_rows(args.rows), key=lambda row: (row.shape, row.quantization)):
            rows = list(group)
            start = time.perf_counter()
            llm = make_vllm(rows[0], Path(folder))
            print(
                f"{rows[0].shape} {rows[0].quantization}: ready after {time.perf_counter() - start:.1f} s", flush=True
            )
            for row in rows:
                found[row.name] = measure(llm, row, args.repeats)
                print(f"{row.name:>16} {found[row.name]:12,.1f}   (published {row.vllm:,.1f})", flush=True)
                if args.json:
                    args.json.write_text(json.dumps(found, indent=2))
            del llm
            gc.collect()
    return 0


if __name__ == "__main__":
    sys.exit(main())
