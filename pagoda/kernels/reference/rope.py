"""Rotary positions: each pair of a head is turned by an angle that grows with the position."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pagoda.kernels.base import FloatArray, IntArray, RopeFrequencies, RopeTable


def rope_table(positions: IntArray, frequencies: RopeFrequencies) -> RopeTable:
    angles = positions.astype(np.float32)[:, None] * frequencies.inverse_frequencies
    wide = angles.astype(np.float64)
    cos = (np.cos(wide) * frequencies.magnitude).astype(np.float32)
    sin = (np.sin(wide) * frequencies.magnitude).astype(np.float32)
    return RopeTable(cos, sin, frequencies.interleaved)


def rope(x: FloatArray, table: RopeTable, accumulate: npt.DTypeLike) -> FloatArray:
    half = table.cos.shape[-1]
    if table.interleaved:
        first, second = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
    else:
        first, second = slice(0, half), slice(half, 2 * half)
    cos, sin = table.cos[:, None, :], table.sin[:, None, :]
    x_first = x[..., first].astype(accumulate, copy=False)
    x_second = x[..., second].astype(accumulate, copy=False)
    turned = np.empty_like(x)
    turned[..., first] = x_first * cos - x_second * sin
    turned[..., second] = x_second * cos + x_first * sin
    turned[..., 2 * half :] = x[..., 2 * half :]
    return turned
