"""Weights that are only shapes: for measuring how fast a model is where its numbers do not matter."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np

from pagoda.kernels.base import RANDOM_DEVIATION, RANDOM_FORMAT

UPPER_HALVES = slice(1 if sys.byteorder == "little" else 0, None, 2)


@dataclass(frozen=True, eq=False)
class RandomWeight:
    """The device that computes with it makes up the numbers, or asks for bytes of a format that it knows."""

    shape: tuple[int, ...]
    format: str = RANDOM_FORMAT

    @property
    def raw(self) -> np.ndarray:
        """As a file would hold it: made anew whenever it is read."""
        numbers = self.to_float32()
        match self.format:
            case "F32":
                return numbers.view(np.uint8)
            case "BF16":
                return np.ascontiguousarray(numbers.view(np.uint16)[..., UPPER_HALVES]).view(np.uint8)
        raise NotImplementedError("a random weight lies in no file")

    def to_float32(self) -> np.ndarray:
        if len(self.shape) == 1:
            return np.ones(self.shape, np.float32)
        numbers = np.random.default_rng(self.shape).standard_normal(self.shape, np.float32)
        numbers *= np.float32(RANDOM_DEVIATION)
        if self.format == "BF16":
            numbers.view(np.uint32)[:] &= 0xFFFF0000
        return numbers

    def rows_to_float32(self, indices: np.ndarray) -> np.ndarray:
        return self.to_float32()[indices]


class RandomSource:
    """Gives a weight for every role that is asked for. Vectors are in single precision where matrices are in any."""

    def __init__(self, matrix_format: str = RANDOM_FORMAT) -> None:
        self._matrix_format = matrix_format
        self._vector_format = "F32" if matrix_format != RANDOM_FORMAT else RANDOM_FORMAT
        self._taken: list[RandomWeight] = []

    @property
    def weights(self) -> tuple[RandomWeight, ...]:
        return tuple(self._taken)

    def take(self, role: str, shape: tuple[int, ...], layer: int | None = None) -> RandomWeight:
        self._taken.append(RandomWeight(shape, self._matrix_format if len(shape) > 1 else self._vector_format))
        return self._taken[-1]

    def finish(self, ignorable: tuple[str, ...] = ()) -> None:
        """There is nothing that could be left over."""
