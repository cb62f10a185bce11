"""llama.cpp's logits: reads windows of token ids from standard input, writes every row of logits to a file."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Any

import llama_cpp
import numpy as np


def main() -> None:
    model_path, num_threads, length, target = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(model_path.encode(), llama_cpp.llama_model_default_params())
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = length
    params.n_threads = params.n_threads_batch = num_threads
    context = llama_cpp.llama_init_from_model(model, params)
    vocab_size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    batch = llama_cpp.llama_batch_init(length, 0, 1)
    print(json.dumps({"vocab_size": vocab_size}), file=answers, flush=True)
    for line in sys.stdin:
        token_ids = json.loads(line)
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
        batch.n_tokens = len(token_ids)
        for index, token in enumerate(token_ids):
            batch.token[index], batch.pos[index] = token, index
            batch.n_seq_id[index], batch.seq_id[index][0] = 1, 0
            batch.logits[index] = True
        if llama_cpp.llama_decode(context, batch):
            raise RuntimeError("llama_decode failed")
        logits: Any = ctypes.cast(llama_cpp.llama_get_logits(context), ctypes.POINTER(ctypes.c_float))
        np.ctypeslib.as_array(logits, shape=(len(token_ids), vocab_size)).tofile(target)
        print(json.dumps({"done": len(token_ids)}), file=answers, flush=True)


if __name__ == "__main__":
    main()
