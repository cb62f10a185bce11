"""What bends between two products: the gates of an MLP and the cap on logits."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from pagoda.kernels.base import FloatArray

GELU_SLOPE = math.sqrt(2.0 / math.pi)
GELU_CUBIC = 0.044715


def gated_silu(gate: FloatArray, up: FloatArray, accumulate: npt.DTypeLike) -> FloatArray:
    wide = gate.astype(accumulate, copy=False)
    with np.errstate(over="ignore"):  # exp(-x) = inf is the right limit: x / inf = 0
        activated = wide / (1.0 + np.exp(-wide))
    activated *= up
    return activated.astype(np.float32, copy=False)


def gated_gelu(gate: FloatArray, up: FloatArray, accumulate: npt.DTypeLike) -> FloatArray:
    wide = gate.astype(accumulate, copy=False)
    activated = 0.5 * wide * (1.0 + np.tanh(GELU_SLOPE * (wide + GELU_CUBIC * wide * wide * wide)))
    activated *= up
    return activated.astype(np.float32, copy=False)


def soft_cap(x: FloatArray, cap: float, accumulate: npt.DTypeLike) -> FloatArray:
    return (np.tanh(x.astype(accumulate, copy=False) / cap) * cap).astype(np.float32, copy=False)
