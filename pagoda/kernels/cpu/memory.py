"""Arrays that begin at a cache line, and pages of a file that are no longer needed."""

from __future__ import annotations

import ctypes
import math
import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

CACHE_LINE = 64
AROUND = 1 << 16  # a read of one page makes Linux map its neighbours too, as far as this


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
        buffer: Any = array
        return ctypes.addressof(ctypes.c_char.from_buffer(buffer))  # several times faster than asking the array
    return array.ctypes.data


def release(array: npt.NDArray[Any]) -> None:
    """Give the pages behind a view of a mapped file back to the system; who reads them again gets them from the file.

    Memory of any other kind is left alone.
    """
    mapped = _mapped_file(array)
    if mapped is None or not hasattr(mapped, "madvise"):
        return
    first = np.frombuffer(mapped, np.uint8, 1).ctypes.data
    start = array.ctypes.data - first
    begin = max(0, start - start % AROUND - AROUND)
    end = min(start + array.nbytes + AROUND, len(mapped))
    mapped.madvise(mmap.MADV_DONTNEED, begin, end - begin)


def _mapped_file(array: npt.NDArray[Any]) -> mmap.mmap | None:
    """What a read-only view looks into: there, forgetting a page loses nothing."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    base = base.obj if isinstance(base, memoryview) else base
    return base if isinstance(base, mmap.mmap) and not array.flags.writeable and array.nbytes else None
