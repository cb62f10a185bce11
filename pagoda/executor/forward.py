"""From the tokens of a step to logits: operator by operator, or as one recorded program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pagoda.core.plan import IntArray
from pagoda.kernels.base import Array, FloatArray, KVPages, Operators, RaggedBatch
from pagoda.kernels.cpu import CpuKernels
from pagoda.models import Model


class Forward(Protocol):
    def logits(self, batch: RaggedBatch, rows: IntArray, out: FloatArray | None = None) -> FloatArray:
        """Run the step; the logits of the tokens at `rows`, in that order.

        `out` are logits of an earlier step that may be overwritten.
        """
        ...

    def hidden(self) -> FloatArray:
        """What the tokens of the last step became after the last norm, [T, D]. The next step may write over it."""
        ...


class EagerForward:
    """Calls the table's operators one after the other."""

    def __init__(self, model: Model, operators: Operators, layers: Sequence[KVPages]) -> None:
        self._model = model
        self._operators = operators
        self._layers = layers
        self._hidden: Array = None

    def logits(self, batch: RaggedBatch, rows: IntArray, out: FloatArray | None = None) -> FloatArray:
        hidden = self._hidden = self._model.forward(self._operators, batch, self._layers)
        logits: FloatArray = self._model.logits(self._operators, self._operators.take_rows(hidden, rows))
        return logits

    def hidden(self) -> FloatArray:
        found: FloatArray = self._hidden
        return found


class RecordedForward:
    """Lets the model run once on symbols, then repeats what it saw in one native call a step."""

    def __init__(self, model: Model, kernels: CpuKernels, layers: list[KVPages], max_tokens: int) -> None:
        recorder = kernels.recorder(layers)
        batch = recorder.batch()
        hidden = model.forward(recorder, batch, layers)
        logits = model.logits(recorder, recorder.take_rows(hidden, batch.token_ids))
        self._program = kernels.compile(recorder, logits, max_tokens, kept=hidden)
        self._num_tokens = 0

    def logits(self, batch: RaggedBatch, rows: IntArray, out: FloatArray | None = None) -> FloatArray:
        self._num_tokens = len(batch.token_ids)
        return self._program.run(batch, rows, out)

    def hidden(self) -> FloatArray:
        return self._program.kept(self._num_tokens)
