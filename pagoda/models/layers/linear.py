"""A product with a weight and, where the model has one, a bias."""

from __future__ import annotations

from dataclasses import dataclass

from pagoda.kernels.base import Array, Operators, Weight


@dataclass(frozen=True, eq=False)
class Linear:
    weight: Weight
    bias: Weight | None = None

    def __call__(self, operators: Operators, x: Array) -> Array:
        return operators.linear(x, self.weight, self.bias)
