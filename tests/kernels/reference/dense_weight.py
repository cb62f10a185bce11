"""A weight that is an array already: the simplest thing the operators accept."""

from __future__ import annotations

import numpy as np


class DenseWeight:
    """Counts how often the whole matrix was asked for."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = np.asarray(values, np.float32)
        self.num_decoded = 0

    @property
    def format(self) -> str:
        return "F32"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def raw(self) -> np.ndarray:
        return self.values.reshape(-1, self.values.shape[-1]).view(np.uint8)

    def to_float32(self) -> np.ndarray:
        self.num_decoded += 1
        return self.values.copy()

    def rows_to_float32(self, indices: np.ndarray) -> np.ndarray:
        return self.values[indices]
