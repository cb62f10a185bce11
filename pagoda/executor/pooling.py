"""One vector for a whole text: the hidden states of its tokens, their mean or the last of them, of length one.

The sum is taken in double precision, token by token: into which chunks the scheduler cuts a text changes no bit of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pagoda.core.plan import BoolArray, IntArray, RowPayload
from pagoda.executor.rows import Rows
from pagoda.kernels.base import FloatArray


@dataclass(eq=False, slots=True)
class Gathered:
    """What is known of one row's vector."""

    is_mean: bool
    num_tokens: int
    """Of the whole text."""
    total: npt.NDArray[np.float64] | None = None

    def add(self, hidden: FloatArray) -> None:
        if not self.is_mean:
            self.total = hidden[-1].astype(np.float64)
            return
        if self.total is None:
            self.total = np.zeros(hidden.shape[1])
        for state in hidden:
            self.total += state

    def vector(self) -> FloatArray:
        assert self.total is not None
        pooled = self.total / self.num_tokens if self.is_mean else self.total
        length = np.sqrt(np.sum(pooled * pooled))
        return (pooled / length if length else pooled).astype(np.float32)


class Pooler:
    """The rows whose requests want a vector and no tokens."""

    def __init__(self) -> None:
        self._gathered: dict[int, Gathered] = {}

    def __bool__(self) -> bool:
        return bool(self._gathered)

    def __contains__(self, row: object) -> bool:
        return row in self._gathered

    def start(self, row: int, payload: RowPayload) -> None:
        """A row begins anew, after preemption as well: a mean is then gathered from the first token on again."""
        self._gathered.pop(row, None)
        if payload.pooling:
            self._gathered[row] = Gathered(payload.pooling == "mean", payload.num_prompt_tokens)

    def stop(self, row: int) -> None:
        self._gathered.pop(row, None)

    def take(self, rows: Rows, is_last: BoolArray, row_starts: IntArray, hidden: FloatArray) -> dict[int, FloatArray]:
        """Gather from a step; the vectors of the texts that end in it, by plan entry."""
        vectors = {}
        for entry, row in enumerate(rows.tolist()):
            gathered = self._gathered.get(row)
            if gathered is None:
                continue
            gathered.add(hidden[row_starts[entry] : row_starts[entry + 1]])
            if is_last[entry]:
                vectors[entry] = gathered.vector()
        return vectors
