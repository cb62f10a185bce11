"""transformers' side of the comparison: float32, all requests as one static batch of equal lengths."""

from __future__ import annotations

import time

import torch
from tasks import Outcome, Setup, Task, serve
from transformers import AutoModelForCausalLM


class Engine:
    def __init__(self, setup: Setup) -> None:
        torch.set_num_threads(setup.num_threads)
        self.model = AutoModelForCausalLM.from_pretrained(setup.model, dtype=torch.float32)
        self.model.eval()

    @torch.inference_mode()
    def run(self, task: Task) -> Outcome:
        prompts = torch.tensor(task.prompts())
        start = time.monotonic()
        output = self.model(prompts, use_cache=True, logits_to_keep=1)
        tokens = output.logits[:, -1].argmax(-1, keepdim=True)
        if task.times_decoding:
            start = time.monotonic()
        for _ in range(task.num_output - 1):
            output = self.model(tokens, past_key_values=output.past_key_values, use_cache=True)
            tokens = output.logits[:, -1].argmax(-1, keepdim=True)
        return Outcome(time.monotonic() - start)


if __name__ == "__main__":
    serve(Engine(Setup.from_command_line()).run)
