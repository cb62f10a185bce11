"""vLLM's side of the comparison, through its LLM class in one process; float32 as the other dequantized engines."""

from __future__ import annotations

import os
import time

from tasks import Outcome, Setup, Task, serve


def main() -> None:
    setup = Setup.from_command_line()
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ["VLLM_CPU_KVCACHE_SPACE"] = "1"  # gigabyte
    os.environ["OMP_NUM_THREADS"] = str(setup.num_threads)
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["VLLM_NO_USAGE_STATS"] = "1"
    from vllm import LLM, SamplingParams

    llm = LLM(
        setup.model,
        dtype="float32",
        max_model_len=1024,
        max_num_seqs=setup.num_streams,
        max_num_batched_tokens=1024,
        enable_prefix_caching=False,
        disable_log_stats=False,
    )

    def run(task: Task) -> Outcome:
        params = SamplingParams(temperature=0.0, max_tokens=task.num_output, ignore_eos=True, detokenize=False)
        prompts = [{"prompt_token_ids": prompt} for prompt in task.prompts()]
        start = time.monotonic()
        outputs = llm.generate(prompts, params, use_tqdm=False)
        end = time.monotonic()
        if task.times_decoding:
            start = max(output.metrics.first_token_ts for output in outputs)
        return Outcome(end - start)

    serve(run)


if __name__ == "__main__":
    main()
