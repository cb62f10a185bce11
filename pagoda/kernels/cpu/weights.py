"""Weights in the form the native kernels read: repacked once, each distinct weight one time."""

from __future__ import annotations

import ctypes

import numpy as np

from pagoda.kernels.base import FloatArray, Weight
from pagoda.kernels.cpu.library import FORMATS, PackedWeight, load_library
from pagoda.kernels.cpu.memory import address, aligned_bytes, release


def packed_bytes(weight: Weight) -> int:
    """What a matrix takes once it is repacked; 0 where the native kernels have no place for it."""
    return _describe(weight, PackedWeight())


def _describe(weight: Weight, packed: PackedWeight) -> int:
    if weight.format not in FORMATS or len(weight.shape) != 2:
        return 0
    rows, columns = weight.shape
    return int(load_library().pagoda_describe_weight(weight.format.encode(), rows, columns, ctypes.byref(packed)))


def integer_row_bytes(num_columns: int) -> int:
    """What a row of so many inputs takes once it is rounded to bytes."""
    return int(load_library().pagoda_integer_row_bytes(num_columns))


class PackedWeights:
    """Keyed by identity, like the reference's dense copies: a tied output head shares its embedding's."""

    def __init__(self, num_threads: int) -> None:
        self._num_threads = num_threads
        self._indices: dict[int, int] = {}
        self._vectors: dict[int, FloatArray] = {}
        self._kept: list[object] = []
        self.packed: list[PackedWeight] = []

    def index(self, weight: Weight) -> int:
        """Where the packed matrix stands in `packed`; it is made on first demand."""
        found = self._indices.get(id(weight))
        if found is None:
            found = self._indices[id(weight)] = len(self.packed)
            self.packed.append(self._pack(weight))
            self._kept.append(weight)  # or its id could be given to another object
        return found

    def is_quantized(self, index: int) -> bool:
        return bool(self.packed[index].scale_bytes)

    def vector(self, weight: Weight) -> FloatArray:
        """A norm weight or a bias, in single precision."""
        if id(weight) not in self._vectors:
            self._vectors[id(weight)] = np.array(weight.to_float32(), np.float32).reshape(-1)
            self._kept.append(weight)
        return self._vectors[id(weight)]

    def num_bytes(self) -> int:
        return sum(weight.num_groups * weight.group_bytes for weight in self.packed)

    def _pack(self, weight: Weight) -> PackedWeight:
        packed = PackedWeight()
        num_bytes = _describe(weight, packed)
        assert num_bytes, f"no packed form for {weight.format} {weight.shape}"
        memory = aligned_bytes(num_bytes)
        raw = np.ascontiguousarray(weight.raw)
        packed.data = address(memory)
        name = weight.format.encode()
        load_library().pagoda_pack(name, address(raw), ctypes.byref(packed), self._num_threads)
        release(weight.raw)
        self._kept.append(memory)
        return packed
