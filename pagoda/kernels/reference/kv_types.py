"""Keys and values in the types of the cache, and back: the native kernels store the same bits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pagoda.kernels.base import FloatArray

LARGEST_BYTE = np.float32(127)
SMALLEST_SCALE = np.finfo(np.float32).smallest_normal  # its inverse is finite


def to_bytes(vectors: FloatArray) -> tuple[npt.NDArray[np.int8], FloatArray]:
    """[..., E] -> bytes and the scales [...] to multiply them by.

    The largest size counts 127, and every number goes to the nearest step, to the even one between two. A vector with
    something that is no finite number gets a scale that is no number either, so that it shows.
    """
    is_finite = np.logical_and.reduce(np.isfinite(vectors), axis=-1)
    known = np.where(is_finite[..., None], vectors, np.float32(0))
    scales = np.abs(known).max(axis=-1) / LARGEST_BYTE
    scales[scales < SMALLEST_SCALE] = 0
    inverses = np.divide(np.float32(1), scales, out=np.zeros_like(scales), where=scales > 0)
    numbers = np.rint(known * inverses[..., None]).astype(np.int8)
    return numbers, np.where(is_finite, scales, np.float32(np.nan))


def from_bytes(numbers: npt.NDArray[np.int8], scales: FloatArray) -> FloatArray:
    return numbers.astype(np.float32) * scales[..., None]


def to_halves(vectors: FloatArray) -> npt.NDArray[np.float16]:
    with np.errstate(over="ignore"):  # what is too large becomes infinite
        return vectors.astype(np.float16)
