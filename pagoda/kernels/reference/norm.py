"""Root-mean-square norm, in float64 throughout and rounded once."""

from __future__ import annotations

import numpy as np

from pagoda.kernels.base import FloatArray


def rms_norm(x: FloatArray, weight: FloatArray, epsilon: float, offset: float) -> FloatArray:
    wide = x.astype(np.float64)
    mean_square = np.mean(wide * wide, axis=-1, keepdims=True)
    wide *= 1.0 / np.sqrt(mean_square + epsilon)
    wide *= weight.astype(np.float64) + offset
    return wide.astype(np.float32)
