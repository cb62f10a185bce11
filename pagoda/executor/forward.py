"""From the tokens of a step to logits: operator by operator, or as one recorded program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pagoda.core.plan import IntArray
from pagoda.kernels.base import FloatArray, KVPages, Operators, RaggedBatch
from pagoda.kernels.cpu import CpuKernels
from pagoda.models import Model


class Forward(Protocol):
    def logits(self, batch: RaggedBatch, rows: IntArray, out: FloatArray | None = None) -> FloatArray:
        """Run the step; the logits of the tokens at `rows`, in that order.

        `out` are logits of an earlier step that may be overwritten.
        """
        ...


class EagerForward:
    """Calls the table's operators one after the other."""

    def __init__(self, model: Model, operators: Operators, layers: Sequence[KVPages]) -> None:
        self._model = model
        self._operators = operators
        self._layers = layers

    def logits(self, batch: RaggedBatch, rows: IntArray, out: FloatArray | None = None) -> FloatArray:
        hidden = self._model.forward(self._operators, batch, self._layers)
        logits: FloatArray = self._model.logits(self._operators, self._operators.take_rows(hidden, rows))
        return logits


class RecordedForward:
    """Lets the model run once on symbols, then repeats what it saw in one native call a step."""

    def __init__(self, model: Model, kernels: CpuKernels, layers: list[KVPages], max_tokens: int) -> None:
        recorder = kernels.recorder(layers)
        batch = recorder.batch()
        hidden = model.forward(recorder, batch, layers)
        logits = model.logits(recorder, recorder.take_rows(hidden, batch.token_ids))
        self._program = kernels.compile(recorder, logits, max_tokens)

    def logits(self, batch: RaggedBatch, rows: IntArray, out: FloatArray | None = None) -> FloatArray:
        return self._program.run(batch, rows, out)
