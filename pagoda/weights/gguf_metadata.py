"""The keys and values of a GGUF header: a cursor that checks before it reads, values decoded when first asked for."""

from __future__ import annotations

import mmap
import struct
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from pagoda.core.errors import ModelFileError

MetadataValue: TypeAlias = bool | int | float | str | list[str] | np.ndarray

BOOL, STRING, ARRAY = 7, 8, 9
NUMBER_TYPES: dict[int, np.dtype[Any]] = {
    0: np.dtype("u1"),
    1: np.dtype("i1"),
    2: np.dtype("<u2"),
    3: np.dtype("<i2"),
    4: np.dtype("<u4"),
    5: np.dtype("<i4"),
    6: np.dtype("<f4"),
    BOOL: np.dtype("u1"),
    10: np.dtype("<u8"),
    11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}

# Bounds that no real file comes near. They hold the time and memory that a header of a gigabyte can cost to a
# fraction of a second and to the size of the file plus 64 MiB.
MAX_HEADER_BYTES = 128 << 20
MAX_STRINGS = 1 << 21
MAX_KEY_BYTES = (1 << 16) - 1
MAX_STRING_BYTES = 1 << 20
DECODED_ALLOWANCE = 56 << 20

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class StoredValue:
    """Where a value lies: `kind` is its own type or, for an array, that of its elements; a string is one element."""

    kind: int
    is_array: bool
    offset: int
    num_elements: int


class HeaderCursor:
    """Reads a header from front to back; nothing is read before its end has been compared with the file's."""

    def __init__(self, name: str, buffer: mmap.mmap, position: int = 0) -> None:
        self.name = name
        self.position = position
        self._buffer = buffer
        self._end = min(len(buffer), MAX_HEADER_BYTES)
        self._num_strings = 0

    def u32(self) -> int:
        return int(_U32.unpack_from(self._buffer, self._advance(4))[0])

    def u64(self) -> int:
        return int(_U64.unpack_from(self._buffer, self._advance(8))[0])

    def text(self, what: str, max_bytes: int) -> str:
        num_bytes = self.u64()
        if num_bytes > max_bytes:
            raise self.error(f"{what} of {num_bytes} bytes, the limit is {max_bytes}")
        start = self._advance(num_bytes)
        try:
            return str(self._buffer[start : self.position], "utf-8")
        except UnicodeDecodeError as error:
            raise not_utf8(f"{self.name}: {what}", error) from None

    def value(self, key: str) -> StoredValue:
        """Note where the value of `key` lies and step over it."""
        kind = self.u32()
        if kind != ARRAY:
            return self._elements(key, kind, is_array=False, num_elements=1)
        kind = self.u32()
        if kind == ARRAY:
            raise self.error(f"{key} is an array of arrays, which is not supported")
        return self._elements(key, kind, is_array=True, num_elements=self.u64())

    def error(self, message: str) -> ModelFileError:
        return ModelFileError(f"{self.name}: {message}")

    def _elements(self, key: str, kind: int, is_array: bool, num_elements: int) -> StoredValue:
        offset = self.position
        if kind == STRING:
            self._skip_strings(key, num_elements)
        elif kind in NUMBER_TYPES:
            self._advance(num_elements * NUMBER_TYPES[kind].itemsize)
        else:
            raise self.error(f"{key} has the unknown type {kind}")
        return StoredValue(kind, is_array, offset, num_elements)

    def _skip_strings(self, key: str, num_strings: int) -> None:
        self._num_strings += num_strings
        if self._num_strings > MAX_STRINGS:
            raise self.error(f"{key} brings the strings of the header over the limit of {MAX_STRINGS}")
        read_length, buffer, position, last = _U64.unpack_from, self._buffer, self.position, self._end - 8
        for _ in range(num_strings):
            if position > last:
                raise self._past_end(key)
            position += 8 + read_length(buffer, position)[0]
        self._advance(position - self.position)

    def _advance(self, num_bytes: int) -> int:
        start = self.position
        if num_bytes > self._end - start:
            raise self._past_end(f"the header ({num_bytes} bytes at {start})")
        self.position = start + num_bytes
        return start

    def _past_end(self, what: str) -> ModelFileError:
        if self._end < len(self._buffer):
            return self.error(f"{what} goes past the limit of {MAX_HEADER_BYTES} bytes for a header")
        return self.error(f"{what} goes past the end of the file at {self._end}")


class Metadata(Mapping[str, MetadataValue]):
    """Values by key, decoded on first access and kept.

    Numbers, booleans and strings are Python's own; an array of numbers is a read-only NumPy view of the file, an array
    of strings a list. Strings must be UTF-8: text that is not cannot be tokenized, printed or sent, so it is refused
    here, with the key's name, rather than wherever it would first be used.
    """

    def __init__(self, name: str, buffer: mmap.mmap, stored: Mapping[str, StoredValue], num_bytes_in_use: int) -> None:
        """`num_bytes_in_use` is what the rest of the header holds in memory; strings may take what that leaves."""
        self._name = name
        self._buffer = buffer
        self._stored = stored
        self._decoded: dict[str, MetadataValue] = {}
        self._bytes_left = len(buffer) + DECODED_ALLOWANCE - num_bytes_in_use

    def __getitem__(self, key: str) -> MetadataValue:
        if key not in self._decoded:
            self._decoded[key] = self._decode(key, self._stored[key])
        return self._decoded[key]

    def __contains__(self, key: object) -> bool:
        return key in self._stored

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)

    def _decode(self, key: str, value: StoredValue) -> MetadataValue:
        if value.kind == STRING:
            strings = self._strings(key, value)
            return strings if value.is_array else strings[0]
        numbers = np.frombuffer(self._buffer, NUMBER_TYPES[value.kind], value.num_elements, value.offset)
        if value.kind == BOOL:
            if numbers.size and numbers.max() > 1:
                raise ModelFileError(f"{self._name}: {key} holds a boolean that is neither 0 nor 1")
            numbers = numbers.view(np.bool_)
        return numbers if value.is_array else numbers[0].item()

    def _strings(self, key: str, value: StoredValue) -> list[str]:
        # The header was walked when the file was opened: the lengths are known to lie in the file.
        strings: list[str] = []
        label = f"{self._name}: {key}"
        buffer, read_length, size_of = self._buffer, _U64.unpack_from, sys.getsizeof
        position, bytes_left = value.offset, self._bytes_left - 8 * value.num_elements
        try:
            for _ in range(value.num_elements):
                start = position + 8
                position = start + read_length(buffer, position)[0]
                if position - start > MAX_STRING_BYTES:
                    raise ModelFileError(f"{label} holds a string over the limit of {MAX_STRING_BYTES} bytes")
                string = str(buffer[start:position], "utf-8")
                bytes_left -= size_of(string)
                if bytes_left < 0:
                    raise ModelFileError(f"{label} takes more memory than the file's size allows")
                strings.append(string)
        except UnicodeDecodeError as error:
            raise not_utf8(label, error) from None
        self._bytes_left = bytes_left
        return strings


def not_utf8(label: str, error: UnicodeDecodeError) -> ModelFileError:
    return ModelFileError(f"{label} is not UTF-8 text ({error.reason} at byte {error.start})")
