"""Pagoda's side of the comparison, through its public API."""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2]))

from tasks import Task, serve

from pagoda import LLM, SamplingParams


def main() -> None:
    model, num_threads = sys.argv[1], int(sys.argv[2])
    llm = LLM(model, num_threads=num_threads, max_num_seqs=32, max_model_len=1024, enable_prefix_caching=False)

    def run(task: Task) -> float:
        params = SamplingParams(temperature=0.0, max_tokens=task.num_output, ignore_eos=True, detokenize=False)
        start = time.monotonic()
        outputs = llm.generate(task.prompts(20_000), params, use_tqdm=False)
        end = time.monotonic()
        if not task.times_decoding:
            return end - start
        first = max(output.metrics.first_token_time or start for output in outputs)
        return end - first

    serve(run)


if __name__ == "__main__":
    main()
