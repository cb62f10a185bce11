"""Weights in the form the native kernels read: repacked once, each distinct weight one time."""

from __future__ import annotations

import ctypes

import numpy as np

from pagoda.kernels.base import FloatArray, Weight
from pagoda.kernels.cpu.library import FORMATS, PackedWeight, load_library
from pagoda.kernels.cpu.memory import address, aligned_bytes


class UnsupportedModel(Exception):
    """The native kernels cannot run this; the NumPy ones can. Never reaches a user."""


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

    def vector(self, weight: Weight) -> FloatArray:
        """A norm weight or a bias, in single precision."""
        if id(weight) not in self._vectors:
            self._vectors[id(weight)] = np.array(weight.to_float32(), np.float32).reshape(-1)
            self._kept.append(weight)
        return self._vectors[id(weight)]

    def num_bytes(self) -> int:
        return sum(weight.num_groups * weight.group_bytes for weight in self.packed)

    def _pack(self, weight: Weight) -> PackedWeight:
        library = load_library()
        if weight.format not in FORMATS or len(weight.shape) != 2:
            raise UnsupportedModel(f"a weight of format {weight.format} and shape {weight.shape}")
        packed = PackedWeight()
        name = weight.format.encode()
        num_bytes = library.pagoda_describe_weight(name, *weight.shape, ctypes.byref(packed))
        if not num_bytes:
            raise UnsupportedModel(f"a weight of format {weight.format} and shape {weight.shape}")
        memory = aligned_bytes(num_bytes)
        raw = np.ascontiguousarray(weight.raw)
        packed.data = address(memory)
        library.pagoda_pack(name, address(raw), ctypes.byref(packed), self._num_threads)
        self._kept.append(memory)
        return packed
