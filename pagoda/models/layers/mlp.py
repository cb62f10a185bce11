"""The gated MLP."""

from __future__ import annotations

from dataclasses import dataclass

from pagoda.kernels.base import Array, Operators
from pagoda.models.config import Activation
from pagoda.models.layers.linear import Linear


@dataclass(frozen=True, eq=False)
class GatedMLP:
    gate: Linear
    up: Linear
    down: Linear
    activation: Activation

    def __call__(self, operators: Operators, x: Array) -> Array:
        gated = operators.gated_silu if self.activation == "silu" else operators.gated_gelu
        return self.down(operators, gated(self.gate(operators, x), self.up(operators, x)))
