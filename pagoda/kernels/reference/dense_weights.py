"""Weights as dense float32 matrices, made once each and kept for as long as the operator table lives."""

from __future__ import annotations

import numpy as np

from pagoda.kernels.base import FloatArray, Weight


class DenseWeights:
    """Keyed by identity: two layers that share one weight (a tied output head) share one copy."""

    def __init__(self) -> None:
        # The weight is kept beside its copy, or its id could be given to another object.
        self._entries: dict[int, tuple[Weight, FloatArray]] = {}

    def get(self, weight: Weight) -> FloatArray:
        entry = self._entries.get(id(weight))
        if entry is None:
            dense = np.ascontiguousarray(weight.to_float32(), dtype=np.float32)
            entry = self._entries[id(weight)] = (weight, dense)
        return entry[1]

    def peek(self, weight: Weight) -> FloatArray | None:
        entry = self._entries.get(id(weight))
        return None if entry is None else entry[1]

    def num_bytes(self) -> int:
        return sum(dense.nbytes for _, dense in self._entries.values())
