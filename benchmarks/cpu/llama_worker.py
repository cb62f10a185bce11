"""llama.cpp's side of the comparison, through the C interface of llama-cpp-python: one batch call a step."""

from __future__ import annotations

import ctypes
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import llama_cpp
import numpy as np
from tasks import Task, serve

MAX_SEQUENCES = 32
CONTEXT = 32 * 272


class Engine:
    def __init__(self, path: str, num_threads: int) -> None:
        llama_cpp.llama_backend_init()
        model_params = llama_cpp.llama_model_default_params()
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), model_params)
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = CONTEXT
        params.n_batch = params.n_ubatch = 512
        params.n_seq_max = MAX_SEQUENCES
        params.n_threads = params.n_threads_batch = num_threads
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        self.vocab_size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        self.batch = llama_cpp.llama_batch_init(512, 0, 1)

    def decode(self, entries: list[tuple[int, int, int, bool]]) -> None:
        """(token, position, sequence, wants logits) for each token, in batches of at most 512."""
        for first in range(0, len(entries), 512):
            part = entries[first : first + 512]
            self.batch.n_tokens = len(part)
            for index, (token, position, sequence, wants) in enumerate(part):
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

    def run(self, task: Task) -> float:
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)
        prompts = task.prompts(20_000)
        start = time.monotonic()
        tokens = []
        for sequence, prompt in enumerate(prompts):
            last = len(prompt) - 1
            self.decode([(token, i, sequence, i == last) for i, token in enumerate(prompt)])
            tokens.append(self.best(-1))
        first = time.monotonic()
        for step in range(task.num_output - 1):
            position = task.num_prompt + step
            self.decode([(token, position, sequence, True) for sequence, token in enumerate(tokens)])
            tokens = [self.best(index) for index in range(len(tokens))]
        llama_cpp.llama_synchronize(self.context)
        return time.monotonic() - (first if task.times_decoding else start)


if __name__ == "__main__":
    serve(Engine(sys.argv[1], int(sys.argv[2])).run)
