"""What a step of a model is made of, call by call. Needs no torch: benchmarks count a CPU's steps by it too."""

from __future__ import annotations

from pagoda.kernels.base import KVPages
from pagoda.kernels.cuda.recorder import Recorder
from pagoda.kernels.symbol import Symbol
from pagoda.models import Model


def record(model: Model) -> tuple[Recorder, Symbol]:
    """The calls, and the logits among their values. Tokens without logits end at the last attention."""
    recorder = Recorder([KVPages(None, None) for _ in range(model.config.num_layers)])
    batch = recorder.batch()
    hidden = model.forward(recorder, batch, recorder.layers, rows=batch.token_ids)  # stands for any of them
    recorder.is_head = True
    return recorder, model.logits(recorder, hidden)
