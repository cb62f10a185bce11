"""Weights that are only shapes: for measuring how fast a model is where its numbers do not matter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pagoda.kernels.base import RANDOM_DEVIATION, RANDOM_FORMAT


@dataclass(frozen=True, eq=False)
class RandomWeight:
    """The device that computes with it makes up the numbers."""

    shape: tuple[int, ...]
    format: str = RANDOM_FORMAT

    @property
    def raw(self) -> np.ndarray:
        raise NotImplementedError("a random weight lies in no file")

    def to_float32(self) -> np.ndarray:
        if len(self.shape) == 1:
            return np.ones(self.shape, np.float32)
        generator = np.random.default_rng(self.shape)
        return generator.standard_normal(self.shape, np.float32) * np.float32(RANDOM_DEVIATION)

    def rows_to_float32(self, indices: np.ndarray) -> np.ndarray:
        return self.to_float32()[indices]


class RandomSource:
    """Gives a weight for every role that is asked for."""

    def __init__(self) -> None:
        self._taken: list[RandomWeight] = []

    @property
    def weights(self) -> tuple[RandomWeight, ...]:
        return tuple(self._taken)

    def take(self, role: str, shape: tuple[int, ...], layer: int | None = None) -> RandomWeight:
        self._taken.append(RandomWeight(shape))
        return self._taken[-1]

    def finish(self, ignorable: tuple[str, ...] = ()) -> None:
        """There is nothing that could be left over."""
