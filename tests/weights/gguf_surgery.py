"""Finds the fields of a well-formed GGUF file and cuts a real one down to some kilobytes, without the reader."""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass, field
from pathlib import Path

from tests.weights.mutants import Field

STRING, ARRAY = 8, 9
NUMBER_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
# Block size and bytes of the types that the two test models use.
BLOCKS = {0: (1, 4), 3: (32, 20), 6: (32, 22), 8: (32, 34), 12: (256, 144), 14: (256, 210)}
ALIGNMENT = 32
FIELDS_OF_ARRAY = 16
MAX_KEPT = 1000


@dataclass(frozen=True, slots=True)
class Pair:
    """Where a key and its value stand; `cuts` are the positions before, between and after the first elements."""

    key: str
    start: int
    end: int
    num_elements: int
    cuts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tensor:
    name: str
    dims: tuple[int, ...]
    kind: int
    offset: int


@dataclass(slots=True)
class Header:
    pairs: list[Pair] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    fields: list[Field] = field(default_factory=list)
    end: int = 0


class _Walker:
    def __init__(self, data: bytes | mmap.mmap) -> None:
        self.data = data
        self.position = 4
        self.fields: list[Field] = []

    def number(self, num_bytes: int) -> int:
        self.fields.append(Field(self.position, num_bytes))
        self.position += num_bytes
        return int.from_bytes(self.data[self.position - num_bytes : self.position], "little")

    def string(self) -> bytes:
        length = self.number(8)
        self.position += length
        return self.data[self.position - length : self.position]

    def elements(self, kind: int, count: int) -> tuple[int, ...]:
        """Step over the elements; the positions after the first of them, as many as a small copy may keep."""
        ends = []
        for _ in range(min(count, MAX_KEPT)):
            if kind == STRING:
                self.string()
            else:
                self.number(NUMBER_BYTES[kind])
            ends.append(self.position)
        rest = count - len(ends)
        if kind != STRING:
            self.position += rest * NUMBER_BYTES[kind]
            return tuple(ends)
        for _ in range(rest):
            self.position += 8 + int.from_bytes(self.data[self.position : self.position + 8], "little")
        return tuple(ends)

    def pair(self) -> Pair:
        start = self.position
        key = self.string().decode()
        kind = self.number(4)
        if kind == ARRAY:
            kind, count = self.number(4), self.number(8)
            first_field = len(self.fields)
            elements_start = self.position
            ends = self.elements(kind, count)
            # The fields of a few elements stand for all, or a vocabulary would drown the rest of the header.
            del self.fields[first_field + FIELDS_OF_ARRAY :]
            return Pair(key, start, self.position, count, (elements_start, *ends))
        cuts = (self.position, *self.elements(kind, 1))
        return Pair(key, start, self.position, 1, cuts)

    def tensor(self) -> Tensor:
        name = self.string().decode()
        dims = tuple(self.number(8) for _ in range(self.number(4)))
        return Tensor(name, dims, self.number(4), self.number(8))


def read_header(data: bytes | mmap.mmap) -> Header:
    walker = _Walker(data)
    walker.number(4)
    num_tensors, num_keys = walker.number(8), walker.number(8)
    pairs = [walker.pair() for _ in range(num_keys)]
    tensors = [walker.tensor() for _ in range(num_tensors)]
    return Header(pairs, tensors, walker.fields, walker.position)


def small_copy(source: Path, num_tokens: int = 300, num_rows: int = 2) -> bytes:
    """The file with its real keys, `num_tokens` tokens, and one tensor of `num_rows` rows for each type in it."""
    with source.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        header = read_header(data)
        pairs = b"".join(_cut_pair(data, pair, num_tokens) for pair in header.pairs)
        infos, contents = _cut_tensors(data, header, num_rows)
        counts = struct.pack("<QQ", len({tensor.kind for tensor in header.tensors}), len(header.pairs))
        head = data[:8] + counts + pairs + infos
    return _padded(head) + contents


def _cut_pair(data: mmap.mmap, pair: Pair, num_tokens: int) -> bytes:
    if not pair.key.startswith("tokenizer.ggml.") or pair.num_elements <= num_tokens:
        return data[pair.start : pair.end]
    # Only the first few merges join to tokens that are still there.
    num_kept = num_tokens // 12 if pair.key.endswith("merges") else num_tokens
    before_count = data[pair.start : pair.cuts[0] - 8]
    return before_count + struct.pack("<Q", num_kept) + data[pair.cuts[0] : pair.cuts[num_kept]]


def _cut_tensors(data: mmap.mmap, header: Header, num_rows: int) -> tuple[bytes, bytes]:
    data_start = -(-header.end // ALIGNMENT) * ALIGNMENT
    infos, contents = b"", b""
    for tensor in {tensor.kind: tensor for tensor in header.tensors}.values():
        block_size, block_bytes = BLOCKS[tensor.kind]
        dims = (*tensor.dims[:1], *(min(length, num_rows) for length in tensor.dims[1:]))
        num_bytes = dims[0] // block_size * block_bytes * (dims[1] if len(dims) > 1 else 1)
        infos += struct.pack("<Q", len(tensor.name)) + tensor.name.encode() + struct.pack("<I", len(dims))
        infos += struct.pack(f"<{len(dims)}QIQ", *dims, tensor.kind, len(contents))
        start = data_start + tensor.offset
        contents += _padded(data[start : start + num_bytes])
    return infos, contents


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % ALIGNMENT)
