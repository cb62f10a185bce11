"""OpenVINO GenAI's side of the comparison: its continuous-batching pipeline, stepped by hand."""

from __future__ import annotations

import time

import numpy as np
import openvino as ov
import openvino_genai
from tasks import Outcome, Setup, Task, serve


class Engine:
    def __init__(self, setup: Setup) -> None:
        scheduling = openvino_genai.SchedulerConfig()
        scheduling.cache_size = 1  # gigabyte
        scheduling.max_num_batched_tokens = 512
        scheduling.max_num_seqs = setup.num_streams
        scheduling.enable_prefix_caching = False
        self.pipeline = openvino_genai.ContinuousBatchingPipeline(
            setup.model, scheduling, "CPU", {"INFERENCE_NUM_THREADS": setup.num_threads}
        )
        self.num_runs = 0

    def run(self, task: Task) -> Outcome:
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = task.num_output
        config.ignore_eos = True
        config.do_sample = False
        prompts = [ov.Tensor(np.array([prompt], np.int64)) for prompt in task.prompts()]
        start = time.monotonic()
        first_id = self.num_runs * 1000
        self.num_runs += 1
        handles = [self.pipeline.add_request(first_id + i, prompt, config) for i, prompt in enumerate(prompts)]
        last: dict[int, float] = {}
        counts = [0] * len(handles)
        longest = 0.0
        begun = 0.0
        while self.pipeline.has_non_finished_requests():
            self.pipeline.step()
            now = time.monotonic()
            for index, handle in enumerate(handles):
                while handle.can_read():
                    counts[index] += sum(len(output.generated_ids) for output in handle.read().values())
                    longest = max(longest, now - last.get(index, now))
                    last[index] = now
            if not begun and len(last) == len(handles):
                begun = now
        end = time.monotonic()
        if set(counts) != {task.num_output}:
            raise RuntimeError(f"wanted {task.num_output} tokens of each request, got {counts}")
        return Outcome(end - (begun if task.times_decoding else start), longest if len(handles) > 1 else None)


if __name__ == "__main__":
    serve(Engine(Setup.from_command_line()).run)
