"""Root-mean-square norm with its constants."""

from __future__ import annotations

from dataclasses import dataclass

from pagoda.kernels.base import Array, Operators, Weight


@dataclass(frozen=True, eq=False)
class RMSNorm:
    weight: Weight
    epsilon: float
    offset: float = 0.0

    def __call__(self, operators: Operators, x: Array) -> Array:
        return operators.rms_norm(x, self.weight, self.epsilon, self.offset)
