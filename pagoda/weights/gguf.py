"""A checked reader of GGUF files: no number of the header is used before it was held against the size of the file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Self

from pagoda.core.errors import ModelFileError
from pagoda.weights.gguf_metadata import MAX_KEY_BYTES, HeaderCursor, Metadata, StoredValue
from pagoda.weights.mapped_file import MappedFile
from pagoda.weights.quantization import GGUF_FORMATS
from pagoda.weights.tensor import TensorInfo
from pagoda.weights.tensor_file import MappedTensors

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_KEYS = 1 << 16
MAX_TENSORS = 1 << 16
MAX_AXES = 4
MAX_TENSOR_NAME_BYTES = 256
# About what the record of one key or tensor takes in memory, its name included.
ENTRY_BYTES = 512

# Types that exist but that no decoder here reads: known by name, so that the refusal can say which.
UNSUPPORTED_FORMATS = {
    9: "Q8_1",
    15: "Q8_K",
    16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS",
    19: "IQ1_S",
    21: "IQ3_S",
    22: "IQ2_S",
    29: "IQ1_M",
    34: "TQ1_0",
    35: "TQ2_0",
    39: "MXFP4",
    40: "NVFP4",
}


class GGUFFile(MappedTensors[Metadata]):
    """A GGUF file; `metadata` is read key by key, when it is asked for."""

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Map the file and check its header; the tensors' bytes are not read."""
        return cls._open(path, _read_header)


def _read_header(mapped: MappedFile) -> tuple[Metadata, Mapping[str, TensorInfo]]:
    cursor = HeaderCursor(mapped.name, mapped.buffer)
    _check_version(cursor, mapped)
    num_tensors, num_keys = cursor.u64(), cursor.u64()
    if num_tensors > MAX_TENSORS or num_keys > MAX_KEYS:
        raise cursor.error(f"{num_tensors} tensors and {num_keys} keys, the limits are {MAX_TENSORS} and {MAX_KEYS}")
    stored = _read_keys(cursor, num_keys)
    metadata = Metadata(mapped.name, mapped.buffer, stored, (num_keys + num_tensors) * ENTRY_BYTES)
    alignment = _alignment(cursor, metadata)
    relative = _read_tensor_infos(cursor, num_tensors)
    data_start = -(-cursor.position // alignment) * alignment
    tensors = {info.name: _placed(info, data_start, alignment, mapped) for info in relative.values()}
    _check_disjoint(tensors, mapped.name)
    return metadata, MappingProxyType(tensors)


def _check_version(cursor: HeaderCursor, mapped: MappedFile) -> None:
    if mapped.buffer[:4] != MAGIC:
        raise cursor.error("is not a GGUF file (it does not begin with GGUF)")
    cursor.position = len(MAGIC)
    version = cursor.u32()
    if version in VERSIONS:
        return
    if int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS:
        raise cursor.error("is a big-endian GGUF file; convert it to little-endian")
    raise cursor.error(f"has GGUF version {version}; versions 2 and 3 are supported")


def _read_keys(cursor: HeaderCursor, num_keys: int) -> dict[str, StoredValue]:
    stored: dict[str, StoredValue] = {}
    for _ in range(num_keys):
        key = cursor.text("a key", MAX_KEY_BYTES)
        if not key.isascii() or not key.isprintable():
            raise cursor.error("a key is not printable ASCII")
        if key in stored:
            raise cursor.error(f"the key {key} stands twice")
        stored[key] = cursor.value(key)
    return stored


def _alignment(cursor: HeaderCursor, metadata: Metadata) -> int:
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
        raise cursor.error("general.alignment is not a power of two")
    return alignment


def _read_tensor_infos(cursor: HeaderCursor, num_tensors: int) -> dict[str, TensorInfo]:
    """Descriptions with offsets as the file gives them, relative to a start that is known only after the last one."""
    tensors: dict[str, TensorInfo] = {}
    for _ in range(num_tensors):
        name = cursor.text("a tensor's name", MAX_TENSOR_NAME_BYTES)
        if name in tensors:
            raise cursor.error(f"the tensor {name!r} stands twice")
        num_axes = cursor.u32()
        if not 1 <= num_axes <= MAX_AXES:
            raise cursor.error(f"the tensor {name!r} has {num_axes} axes; 1 to {MAX_AXES} are allowed")
        # The file gives the innermost axis first.
        shape = tuple(reversed([cursor.u64() for _ in range(num_axes)]))
        tensors[name] = _described(cursor, name, shape, cursor.u32(), cursor.u64())
    return tensors


def _described(cursor: HeaderCursor, name: str, shape: tuple[int, ...], kind: int, offset: int) -> TensorInfo:
    form = GGUF_FORMATS.get(kind)
    if form is None:
        known = UNSUPPORTED_FORMATS.get(kind, "unknown")
        raise cursor.error(f"the tensor {name!r} has the type {kind} ({known}), which is not supported")
    if min(shape) < 1:
        raise cursor.error(f"the tensor {name!r} has an axis of length zero")
    if shape[-1] % form.block_size:
        raise cursor.error(f"the rows of {name!r} are not whole blocks of {form.block_size} ({form.name})")
    return TensorInfo(name, form.name, shape, offset, form.num_bytes(math.prod(shape)))


def _placed(info: TensorInfo, data_start: int, alignment: int, mapped: MappedFile) -> TensorInfo:
    if info.offset % alignment:
        raise ModelFileError(f"{mapped.name}: the tensor {info.name!r} is not aligned to {alignment} bytes")
    offset = data_start + info.offset
    if offset + info.num_bytes > mapped.size:
        raise ModelFileError(
            f"{mapped.name}: the tensor {info.name!r} ends at byte {offset + info.num_bytes}, the file at {mapped.size}"
            "; it may be cut short"
        )
    return TensorInfo(info.name, info.format, info.shape, offset, info.num_bytes)


def _check_disjoint(tensors: Mapping[str, TensorInfo], name: str) -> None:
    end = 0
    for info in sorted(tensors.values(), key=lambda info: info.offset):
        if info.offset < end:
            raise ModelFileError(f"{name}: the tensor {info.name!r} overlaps another")
        end = info.offset + info.num_bytes
