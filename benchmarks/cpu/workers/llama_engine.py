"""llama.cpp's side of the comparison, through the C interface of llama-cpp-python: one batch call a step."""

from __future__ import annotations

import ctypes
import time
from typing import Any

import llama_cpp
import numpy as np
from tasks import Outcome, Setup, Task, serve

BATCH = 512
Entry = tuple[int, int, int, bool]
"""(token, position, sequence, wants logits)"""


class Engine:
    """A context is laid out for the task at hand, outside the timing: as many sequences, as much cache as it needs."""

    def __init__(self, setup: Setup) -> None:
        llama_cpp.llama_backend_init()
        params = llama_cpp.llama_model_default_params()
        self.num_threads = setup.num_threads
        self.model = llama_cpp.llama_model_load_from_file(setup.model.encode(), params)
        self.vocab_size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        self.batch = llama_cpp.llama_batch_init(BATCH, 0, 1)
        self.context: Any = None
        self.task: Task | None = None

    def open_context(self, task: Task) -> None:
        if self.context is not None and task == self.task:
            llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)
            return
        if self.context is not None:
            llama_cpp.llama_free(self.context)
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = task.num_requests * -(-task.num_context // 256) * 256
        params.n_batch = params.n_ubatch = BATCH
        params.n_seq_max = task.num_requests
        params.n_threads = params.n_threads_batch = self.num_threads
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        self.task = task

    def decode(self, entries: list[Entry]) -> None:
        self.batch.n_tokens = len(entries)
        for index, (token, position, sequence, wants) in enumerate(entries):
            self.batch.token[index] = token
            self.batch.pos[index] = position
            self.batch.n_seq_id[index] = 1
            self.batch.seq_id[index][0] = sequence
            self.batch.logits[index] = wants
        if llama_cpp.llama_decode(self.context, self.batch):
            raise RuntimeError("llama_decode failed")

    def best(self, index: int) -> int:
        logits: Any = llama_cpp.llama_get_logits_ith(self.context, index)
        address = ctypes.cast(logits, ctypes.POINTER(ctypes.c_float))
        return int(np.ctypeslib.as_array(address, shape=(self.vocab_size,)).argmax())

    def read_prompts(self, prompts: list[list[int]]) -> list[int]:
        """As many whole prompts a call as a batch holds; the first token of each answer."""
        tokens = []
        together = max(1, BATCH // len(prompts[0]))
        for first in range(0, len(prompts), together):
            entries: list[Entry] = []
            ends = []
            for sequence, prompt in enumerate(prompts[first : first + together], first):
                last = len(prompt) - 1
                entries += [(token, i, sequence, i == last) for i, token in enumerate(prompt)]
                ends.append(len(entries) - 1)
            self.decode(entries)
            tokens += [self.best(index) for index in ends]
        return tokens

    def run(self, task: Task) -> Outcome:
        self.open_context(task)
        start = time.monotonic()
        tokens = self.read_prompts(task.prompts())
        if task.times_decoding:
            start = time.monotonic()
        for step in range(task.num_output - 1):
            position = task.num_prompt + step
            self.decode([(token, position, sequence, True) for sequence, token in enumerate(tokens)])
            tokens = [self.best(index) for index in range(len(tokens))]
        return Outcome(time.monotonic() - start)


if __name__ == "__main__":
    serve(Engine(Setup.from_command_line()).run)
