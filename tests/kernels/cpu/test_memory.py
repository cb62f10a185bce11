"""Aligned memory, and what is given back of a mapped file."""

from __future__ import annotations

import mmap
import re
from pathlib import Path

import numpy as np
import pytest

from pagoda.kernels.cpu.memory import CACHE_LINE, address, aligned_bytes, aligned_floats, release
from pagoda.weights.mapped_file import MappedFile


@pytest.mark.parametrize("count", [1, 63, 64, 1000])
def test_memory_begins_at_a_cache_line(count: int):
    assert aligned_bytes(count).ctypes.data % CACHE_LINE == 0
    floats = aligned_floats(count, 3)
    assert floats.shape == (count, 3) and floats.dtype == np.float32
    assert address(floats) == floats.ctypes.data


def test_an_address_is_that_of_the_first_number_also_of_memory_that_is_only_read():
    values = np.arange(12, dtype=np.int32)
    assert address(values[5:]) == values.ctypes.data + 20
    frozen = values.copy()
    frozen.setflags(write=False)
    assert address(frozen) == frozen.ctypes.data
    with pytest.raises(AssertionError):
        address(values[::2])


def resident_bytes(array: np.ndarray) -> int:
    """Of the mapping that the array lies in, as the system counts them."""
    place, is_inside = array.ctypes.data, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        header = re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line)
        if header:
            is_inside = int(header[1], 16) <= place < int(header[2], 16)
        elif is_inside and line.startswith("Rss:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no such mapping")


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="this system does not say what is resident")
def test_pages_of_a_file_go_and_come_back_with_the_same_bytes(tmp_path: Path):
    path = tmp_path / "weights"
    content = np.random.default_rng(0).integers(0, 256, 4 << 20, dtype=np.uint8)
    path.write_bytes(content.tobytes())
    with MappedFile.open(path) as mapped:
        tensor = mapped.view(4099, 3 << 20).reshape(3, -1)
        before = int(tensor.sum(dtype=np.int64))
        assert resident_bytes(tensor) >= 3 << 20
        release(tensor)
        assert resident_bytes(tensor) < 1 << 20
        assert int(tensor.sum(dtype=np.int64)) == before
        np.testing.assert_array_equal(tensor.reshape(-1), content[4099 : 4099 + (3 << 20)])


def test_memory_that_is_no_file_keeps_what_it_holds():
    values = np.arange(1 << 16, dtype=np.uint8)
    frozen = values.copy()
    frozen.setflags(write=False)
    private = mmap.mmap(-1, 1 << 20)
    writable = np.frombuffer(private, np.uint8)
    writable[:] = 7
    for array in (values, frozen, values[:0], writable):
        before = array.copy()
        release(array)
        np.testing.assert_array_equal(array, before)
