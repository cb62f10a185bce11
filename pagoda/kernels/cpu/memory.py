"""Arrays that begin at a cache line."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np
import numpy.typing as npt

CACHE_LINE = 64


def aligned_bytes(num_bytes: int) -> npt.NDArray[np.uint8]:
    """Memory that the system hands out as it is touched."""
    memory = np.empty(num_bytes + CACHE_LINE, np.uint8)
    start = -memory.ctypes.data % CACHE_LINE
    return memory[start : start + num_bytes]


def aligned_floats(*shape: int) -> npt.NDArray[np.float32]:
    return aligned_bytes(4 * math.prod(shape)).view(np.float32).reshape(shape)


def address(array: npt.NDArray[Any]) -> int:
    assert array.flags.c_contiguous
    if array.flags.writeable and array.size:
        return ctypes.addressof(ctypes.c_char.from_buffer(array))  # several times faster than asking the array
    return array.ctypes.data
