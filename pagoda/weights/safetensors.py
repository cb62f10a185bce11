"""A checked reader of safetensors files, alone or sharded behind an index."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from pagoda.core.errors import ModelFileError
from pagoda.weights.json_file import parse_json_object, read_json_object
from pagoda.weights.mapped_file import MappedFile
from pagoda.weights.quantization import SAFETENSORS_FORMATS
from pagoda.weights.tensor import TensorInfo
from pagoda.weights.tensor_file import MappedTensors

INDEX_NAME = "model.safetensors.index.json"
LENGTH_BYTES = 8
MAX_HEADER_BYTES = 100_000_000
MAX_TENSORS = 1 << 16
MAX_AXES = 8
# Bounds the axes of tensors that have no elements, where the size of the file cannot.
MAX_ELEMENTS = 1 << 48


class SafetensorsFile(MappedTensors[Mapping[str, str]]):
    """One safetensors file; `metadata` is what its writer put there."""

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Map the file and check its header; the tensors' bytes are not read."""
        return cls._open(path, _read_header)


class ShardedSafetensors:
    """The files of one folder behind `model.safetensors.index.json`, seen as one."""

    def __init__(self, shards: Mapping[str, SafetensorsFile], shard_of: Mapping[str, str]) -> None:
        self.tensors: Mapping[str, TensorInfo] = MappingProxyType(
            {name: shards[shard].tensors[name] for name, shard in shard_of.items()}
        )
        self._shards = shards
        self._shard_of = shard_of

    @classmethod
    def open(cls, folder: str | Path) -> ShardedSafetensors:
        folder = Path(folder)
        shard_of = _read_index(folder)
        with ExitStack() as opened:
            shards = {}
            for shard in sorted(set(shard_of.values())):
                path = file_inside(folder, shard)
                if not path.exists():
                    raise ModelFileError(f"{INDEX_NAME}: names {shard}, which is not in the folder")
                shards[shard] = opened.enter_context(SafetensorsFile.open(path))
            for name, shard in shard_of.items():
                if name not in shards[shard].tensors:
                    raise ModelFileError(f"{INDEX_NAME}: the tensor {name!r} is not in {shard}")
            opened.pop_all()
        return cls(shards, shard_of)

    def raw(self, name: str) -> np.ndarray:
        return self._shards[self._shard_of[name]].raw(name)

    def headers(self) -> Iterator[bytes]:
        for shard in self._shards.values():
            yield from shard.headers()

    def close(self) -> None:
        for shard in self._shards.values():
            shard.close()


def file_inside(folder: Path, name: str) -> Path:
    """The path of a plain file name in `folder`, refused where the name or a link leads out of it.

    A snapshot of the Hugging Face cache consists of links into the `blobs` folder two levels up; these are followed.
    """
    if not name or name in (".", "..") or "\0" in name or "/" in name or "\\" in name:
        raise ModelFileError(f"{folder.name}: {name[:80]!r} is not the name of a file in the folder")
    path = folder / name
    try:
        target, home = path.resolve(), folder.resolve()
    except (OSError, RuntimeError):
        raise ModelFileError(f"{folder.name}: {name[:80]!r} is a link that leads nowhere") from None
    in_cache = home.parent.name == "snapshots" and target.parent == home.parent.parent / "blobs"
    if target.parent != home and not in_cache:
        raise ModelFileError(f"{folder.name}: {name[:80]!r} leads out of the folder")
    return path


def _read_index(folder: Path) -> dict[str, str]:
    model_bytes = sum(shard.stat().st_size for shard in folder.glob("*.safetensors") if shard.is_file())
    index = read_json_object(file_inside(folder, INDEX_NAME), model_bytes)
    shard_of = index.get("weight_map")
    if not isinstance(shard_of, dict) or not shard_of:
        raise ModelFileError(f"{INDEX_NAME}: weight_map is missing or empty")
    for name, shard in shard_of.items():
        if not isinstance(shard, str) or not shard.endswith(".safetensors"):
            raise ModelFileError(f"{INDEX_NAME}: the tensor {name[:80]!r} is not given a .safetensors file")
    return shard_of


def _read_header(mapped: MappedFile) -> tuple[Mapping[str, str], Mapping[str, TensorInfo]]:
    if mapped.size < LENGTH_BYTES:
        raise ModelFileError(f"{mapped.name}: too short for a safetensors file")
    num_bytes = int.from_bytes(mapped.buffer[:LENGTH_BYTES], "little")
    if num_bytes > MAX_HEADER_BYTES or num_bytes > mapped.size - LENGTH_BYTES:
        raise ModelFileError(f"{mapped.name}: a header of {num_bytes} bytes in a file of {mapped.size}")
    data_start = LENGTH_BYTES + num_bytes
    text = mapped.buffer[LENGTH_BYTES:data_start]
    if text.count(b"{") > MAX_TENSORS:
        raise ModelFileError(f"{mapped.name}: the header lists more than {MAX_TENSORS} tensors")
    header = parse_json_object(text, mapped.name, mapped.size)
    metadata = _checked_metadata(header.pop("__metadata__", None), mapped.name)
    tensors = {name: _described(name, entry, data_start, mapped.name) for name, entry in header.items()}
    _check_contiguous(tensors, data_start, mapped)
    return metadata, MappingProxyType(tensors)


def _checked_metadata(metadata: Any, label: str) -> Mapping[str, str]:
    if metadata is None:
        return MappingProxyType({})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ModelFileError(f"{label}: __metadata__ is not an object of strings")
    return MappingProxyType(metadata)


def _described(name: str, entry: Any, data_start: int, label: str) -> TensorInfo:
    what = f"{label}: the tensor {name[:80]!r}"
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise ModelFileError(f"{what} must have dtype, shape and data_offsets, and nothing else")
    dtype = entry["dtype"]
    form = SAFETENSORS_FORMATS.get(dtype) if isinstance(dtype, str) else None
    if form is None:
        raise ModelFileError(f"{what} has the type {str(dtype)[:40]}, which is not supported")
    shape, offsets = _naturals(entry["shape"], what), _naturals(entry["data_offsets"], what)
    if len(shape) > MAX_AXES or len(offsets) != 2 or math.prod(max(length, 1) for length in shape) > MAX_ELEMENTS:
        raise ModelFileError(f"{what} has a shape or offsets of an impossible size")
    start, end = offsets
    if end - start != form.num_bytes(math.prod(shape)):
        raise ModelFileError(f"{what} takes {end - start} bytes, its shape and type say otherwise")
    return TensorInfo(name, form.name, shape, data_start + start, end - start)


def _naturals(values: Any, what: str) -> tuple[int, ...]:
    if not isinstance(values, list) or not all(type(value) is int and 0 <= value < 1 << 63 for value in values):
        raise ModelFileError(f"{what} has a shape or an offset that is not a list of whole numbers")
    return tuple(values)


def _check_contiguous(tensors: Mapping[str, TensorInfo], data_start: int, mapped: MappedFile) -> None:
    # The format leaves no holes, so that no bytes can hide between tensors.
    end = data_start
    for info in sorted(tensors.values(), key=lambda info: (info.offset, info.num_bytes)):
        if info.offset != end:
            raise ModelFileError(f"{mapped.name}: the tensor {info.name[:80]!r} does not begin where the last one ends")
        end += info.num_bytes
    if end != mapped.size:
        raise ModelFileError(
            f"{mapped.name}: the tensors end at byte {end}, the file at {mapped.size}; it may be cut short"
        )
