"""Weights in the form the native kernels read: repacked once, each distinct weight one time."""

from __future__ import annotations

import ctypes

import numpy as np
import numpy.typing as npt

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
        self._weights: list[Weight] = []  # kept, or the id of one could be given to another object
        self._memory: dict[int, npt.NDArray[np.uint8]] = {}  # by index
        self.packed: list[PackedWeight] = []

    def index(self, weight: Weight) -> int:
        """Where the matrix stands in `packed`. It is only described there until it is packed."""
        found = self._indices.get(id(weight))
        if found is None:
            found = self._indices[id(weight)] = len(self.packed)
            packed = PackedWeight()
            assert _describe(weight, packed), f"no packed form for {weight.format} {weight.shape}"
            self.packed.append(packed)
            self._weights.append(weight)
        return found

    def pack(self, weight: Weight) -> None:
        """Repack a matrix, once."""
        index = self.index(weight)
        if index not in self._memory:
            self._memory[index] = self._pack(weight, self.packed[index])

    def pack_all(self) -> None:
        for weight in list(self._weights):
            if len(weight.shape) == 2:
                self.pack(weight)

    def is_quantized(self, index: int) -> bool:
        return bool(self.packed[index].scale_bytes)

    def vector(self, weight: Weight) -> FloatArray:
        """A norm weight or a bias, in single precision."""
        if id(weight) not in self._vectors:
            self._vectors[id(weight)] = np.array(weight.to_float32(), np.float32).reshape(-1)
            self._weights.append(weight)
        return self._vectors[id(weight)]

    def num_bytes(self) -> int:
        """What was really taken."""
        return sum(matrix.nbytes for matrix in self._memory.values()) + sum(v.nbytes for v in self._vectors.values())

    def _pack(self, weight: Weight, packed: PackedWeight) -> npt.NDArray[np.uint8]:
        memory = aligned_bytes(packed_bytes(weight))
        stored = weight.raw
        raw = np.ascontiguousarray(stored)
        packed.data = address(memory)
        name = weight.format.encode()
        load_library().pagoda_pack(name, address(raw), ctypes.byref(packed), self._num_threads)
        release(stored)
        return memory
