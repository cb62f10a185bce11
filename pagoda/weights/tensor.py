"""A weight as it lies in its file, and the record that says where."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pagoda.weights.quantization import FORMATS


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor lies: `offset` counts from the start of the file, `shape` has the outermost axis first."""

    name: str
    format: str
    shape: tuple[int, ...]
    offset: int
    num_bytes: int


class TensorFile(Protocol):
    """What every weight file offers, whatever its kind."""

    @property
    def tensors(self) -> Mapping[str, TensorInfo]: ...

    def raw(self, name: str) -> np.ndarray: ...

    def headers(self) -> Iterator[bytes]: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, eq=False)
class QuantizedTensor:
    """A weight in its stored format. `raw` is read-only, uint8, shape (number of rows, bytes of one row).

    A row is the last axis; all the axes before it are folded into the first axis of `raw`.
    """

    name: str
    format: str
    shape: tuple[int, ...]
    raw: np.ndarray

    @classmethod
    def from_bytes(cls, info: TensorInfo, raw: np.ndarray) -> QuantizedTensor:
        num_rows = math.prod(info.shape[:-1])
        row_bytes = FORMATS[info.format].num_bytes(info.shape[-1] if info.shape else 1)
        return cls(info.name, info.format, info.shape, raw.reshape(num_rows, row_bytes))

    def to_float32(self) -> np.ndarray:
        """The whole tensor: a read-only view of the file for F32, a fresh array for every other format."""
        if self.format == "F32":
            return _as_float32(self.raw).reshape(self.shape)
        return FORMATS[self.format].dequantize(self.raw).reshape(self.shape)

    def rows_to_float32(self, indices: np.ndarray) -> np.ndarray:
        """Entries of the first axis, shape (*indices.shape, *shape[1:]), without decoding the others."""
        if len(self.shape) < 2:
            raise ValueError(f"{self.name}: rows can be taken from a tensor of two or more axes, this has {self.shape}")
        indices = np.asarray(indices)
        if indices.size and not 0 <= indices.min() <= indices.max() < self.shape[0]:
            raise IndexError(f"{self.name}: a row index is outside 0..{self.shape[0] - 1}")
        entries = self.raw.reshape(self.shape[0], math.prod(self.shape[1:-1]), self.raw.shape[1])
        decoded = FORMATS[self.format].dequantize(entries[indices])
        return decoded.reshape(*indices.shape, *self.shape[1:])


def _as_float32(raw: np.ndarray) -> np.ndarray:
    values = raw.view("<f4")
    # Native kernels read whole words; a header of odd length leaves the data of a file off their boundary.
    return values if values.flags.aligned else values.copy()
