"""From the tokens of a step to logits: operator by operator, or as one recorded program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pagoda.core.plan import IntArray
from pagoda.kernels.base import Array, FloatArray, KVPages, Operators, RaggedBatch
from pagoda.kernels.cpu import CpuKernels, Recorder
from pagoda.kernels.symbol import Symbol
from pagoda.models import Model


class Forward(Protocol):
    def logits(
        self, batch: RaggedBatch, rows: IntArray, out: FloatArray | None = None, num_logits: int | None = None
    ) -> FloatArray:
        """Run the step; the logits of the tokens at `rows`, in that order, or of the first `num_logits` of them.

        `out` are logits of an earlier step that may be overwritten.
        """
        ...

    def hidden(self) -> FloatArray:
        """What the tokens at the rows of the last step became after the last norm, [rows, D]. The next step may write
        over it."""
        ...

    def allocated_bytes(self) -> tuple[int, int]:
        """What it works in, and what it hands logits out in, as far as it keeps them."""
        ...


class EagerForward:
    """Calls the table's operators one after the other."""

    def __init__(self, model: Model, operators: Operators, layers: Sequence[KVPages]) -> None:
        self._model = model
        self._operators = operators
        self._layers = layers
        self._hidden: Array = None

    def logits(
        self, batch: RaggedBatch, rows: IntArray, out: FloatArray | None = None, num_logits: int | None = None
    ) -> FloatArray:
        self._hidden = self._model.forward(self._operators, batch, self._layers, rows)
        logits: FloatArray = self._model.logits(self._operators, self._hidden[:num_logits])
        return logits

    def hidden(self) -> FloatArray:
        found: FloatArray = self._hidden
        return found

    def allocated_bytes(self) -> tuple[int, int]:
        return 0, 0  # every step takes its own


class RecordedForward:
    """Lets the model run once on symbols, then repeats what it saw in one native call a step."""

    def __init__(
        self, model: Model, kernels: CpuKernels, layers: list[KVPages], max_tokens: int, max_rows: int = 0
    ) -> None:
        recorder, logits, hidden = record(model, kernels, layers)
        self._program = kernels.compile(recorder, logits, max_tokens, hidden, max_rows)
        self._num_rows = 0

    def logits(
        self, batch: RaggedBatch, rows: IntArray, out: FloatArray | None = None, num_logits: int | None = None
    ) -> FloatArray:
        self._num_rows = len(rows)
        return self._program.run(batch, rows, out, num_logits)

    def hidden(self) -> FloatArray:
        return self._program.kept(self._num_rows)

    def allocated_bytes(self) -> tuple[int, int]:
        return self._program.allocated_bytes()


def record(model: Model, kernels: CpuKernels, layers: list[KVPages]) -> tuple[Recorder, Symbol, Symbol]:
    """What the model does, with its logits and the hidden states of their tokens, which outlive a step."""
    recorder = kernels.recorder(layers)
    batch = recorder.batch()
    hidden = model.forward(recorder, batch, layers, rows=batch.token_ids)  # stands for any of them
    return recorder, model.logits(recorder, hidden), hidden
