from __future__ import annotations

import numpy as np
import pytest

from pagoda.kernels.cpu import peaks
from pagoda.kernels.cpu.library import available_instruction_sets, load_library
from pagoda.kernels.cpu.memory import address
from pagoda.kernels.cpu.peaks import measure_peaks


@pytest.mark.parametrize("num_threads", [1, 2, 3])
@pytest.mark.parametrize("count", [1, 7, 8, 1001])
def test_every_word_is_read_once(num_threads: int, count: int) -> None:
    words = np.random.default_rng(count).integers(0, 1 << 64, count, dtype=np.uint64)
    expected = int(words.sum(dtype=np.uint64))
    assert load_library().pagoda_read(address(words), count, num_threads) == expected


@pytest.mark.parametrize("in_bytes", [False, True])
@pytest.mark.parametrize("name", available_instruction_sets())
def test_operations_grow_with_rounds_and_threads(name: str, in_bytes: bool) -> None:
    multiply = load_library().pagoda_multiply
    one = multiply(name.encode(), in_bytes, 1, 1)
    assert one > 0 and one % 32 == 0, "whole lanes, a product and a sum each"
    assert multiply(name.encode(), in_bytes, 10, 2) == 20 * one


def test_a_machine_has_its_peaks() -> None:
    found = measure_peaks(1, memory_bytes=1 << 20, try_seconds=0.001)
    assert set(found.operations_per_second) == {"f32", "int8"}
    assert found.bytes_per_second > 1e8 and min(found.operations_per_second.values()) > 1e7


def test_without_the_library_numpy_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peaks, "available_instruction_sets", lambda: ())
    found = measure_peaks(1, memory_bytes=1 << 20)
    assert set(found.operations_per_second) == {"f32"} and found.bytes_per_second > 1e8
