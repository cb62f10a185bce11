"""A file of tensors, mapped and checked: what every kind of weight file has in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Generic, Self, TypeVar

import numpy as np

from pagoda.weights.mapped_file import MappedFile
from pagoda.weights.tensor import TensorInfo

MetadataType = TypeVar("MetadataType")


class MappedTensors(Generic[MetadataType]):
    """An open file: `metadata`, `tensors` by name, and the bytes of each tensor as views of the map."""

    def __init__(self, mapped: MappedFile, metadata: MetadataType, tensors: Mapping[str, TensorInfo]) -> None:
        self.metadata = metadata
        self.tensors = tensors
        self._mapped = mapped

    @classmethod
    def _open(
        cls, path: str | Path, read_header: Callable[[MappedFile], tuple[MetadataType, Mapping[str, TensorInfo]]]
    ) -> Self:
        mapped = MappedFile.open(Path(path))
        try:
            return cls(mapped, *read_header(mapped))
        except BaseException:
            mapped.close()
            raise

    def raw(self, name: str) -> np.ndarray:
        """The tensor's bytes: one-dimensional, uint8, read-only, in the file."""
        info = self.tensors[name]
        return self._mapped.view(info.offset, info.num_bytes)

    def headers(self) -> Iterator[bytes]:
        """What stands before the tensors."""
        start = min((info.offset for info in self.tensors.values()), default=self._mapped.size)
        yield self._mapped.buffer[:start]

    def close(self) -> None:
        self._mapped.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
