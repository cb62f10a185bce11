"""Inputs of a product rounded to bytes: what `native/integer.inc` multiplies quantized weights by."""

from __future__ import annotations

import numpy as np

from pagoda.kernels.base import FloatArray

BLOCK = 32
OUTLIER_SIZE = np.float32(5)
SMALLEST_OUTLIER = np.float32(1e-18)  # below it squares vanish
SMALLEST = np.float32(1e-30)  # a block of nothing larger counts as zeros
LARGEST = np.float32(1e30)  # a row with anything larger has no values
SCALE_BITS = np.uint32(0xFFFFFFFC)  # a scale ends in two zero bits: the kernels multiply it by 3 * 2^22, exactly
LANES = 16


def round_inputs(x: FloatArray) -> FloatArray:
    """[T, columns], every value the one that stands for it: a byte times the scale of its 32 columns, or itself where
    it is larger than five times the root mean square of its row. A row with something beyond 1e30 in it, or
    that is no number, has no values."""
    limit = np.maximum(OUTLIER_SIZE * np.sqrt(_mean_squares(x)), SMALLEST_OUTLIER)
    stands_out = np.abs(x) > limit[:, None]
    blocks = np.where(stands_out, np.float32(0), x).reshape(len(x), -1, BLOCK)
    size = np.abs(blocks).max(axis=2, keepdims=True)
    is_zero = size < SMALLEST
    divisor = np.where(is_zero, np.float32(1), size)
    with np.errstate(invalid="ignore", over="ignore"):
        digits = np.rint(blocks * np.where(is_zero, np.float32(0), np.float32(127) / divisor))
        scale = np.where(is_zero, np.float32(0), _without_last_bits(divisor * np.float32(1 / 127)))
        rounded = np.where(stands_out, x, (digits * scale).reshape(x.shape))
    is_sound = (np.abs(x) <= LARGEST).all(axis=1, keepdims=True)
    return np.where(is_sound, rounded, np.float32(np.nan)).astype(np.float32)


def _without_last_bits(scale: FloatArray) -> FloatArray:
    return (scale.view(np.uint32) & SCALE_BITS).view(np.float32)


def _mean_squares(x: FloatArray) -> FloatArray:
    with np.errstate(over="ignore", invalid="ignore"):
        lanes = np.square(x.astype(np.float64).reshape(len(x), -1, LANES)).sum(axis=1)
        sums = lanes.astype(np.float32).astype(np.float64).sum(axis=1).astype(np.float32)
        return sums / np.float32(x.shape[1])
