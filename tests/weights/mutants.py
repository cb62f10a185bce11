"""Damaged copies of a file, in endless seeded variety: flipped bits, cut ends, absurd numbers, moved bytes."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# Numbers at which careless arithmetic breaks: empty, one, and both sides of every width's edge.
ABSURD_NUMBERS = (0, 1, 2, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 2**20, 2**64 - 1)


@dataclass(frozen=True, slots=True)
class Field:
    """A number in a file: a length, a count, a type, an axis, an offset; little-endian, or decimal text."""

    offset: int
    num_bytes: int
    is_text: bool = False


@dataclass(frozen=True, slots=True)
class Mutation:
    """Write each patch over the file; then, if `length` is given, cut the file there."""

    patches: tuple[tuple[int, bytes], ...]
    length: int | None = None

    def applied_to(self, data: bytes) -> bytes:
        mutant = bytearray(data)
        for offset, patch in self.patches:
            mutant[offset : offset + len(patch)] = patch
        return bytes(mutant if self.length is None else mutant[: self.length])


def mutations(header: bytes, fields: Sequence[Field], seed: int) -> Iterator[Mutation]:
    """Endless mutations of a file that begins with `header`; none changes a byte after it, some cut the file in it."""
    choose = random.Random(seed)
    kinds = (_flip_bits, _cut, _absurd_number, _absurd_number, _near_number, _copy_field, _splice, _shift)
    while True:
        rounds = 1 if choose.random() < 0.8 else choose.randint(2, 4)
        steps = [choose.choice(kinds)(choose, header, fields) for _ in range(rounds)]
        lengths = [step.length for step in steps if step.length is not None]
        yield Mutation(tuple(patch for step in steps for patch in step.patches), min(lengths, default=None))


def mutants(data: bytes, fields: Sequence[Field], seed: int) -> Iterator[bytes]:
    """Endless damaged copies of a small file."""
    for mutation in mutations(data, fields, seed):
        yield mutation.applied_to(data)


def number_fields_of_text(text: bytes, start: int) -> list[Field]:
    """Each decimal number of a JSON text that lies at `start` of a file."""
    fields, position = [], 0
    while position < len(text):
        length = 0
        while text[position + length : position + length + 1].isdigit():
            length += 1
        if length:
            fields.append(Field(start + position, length, is_text=True))
        position += max(length, 1)
    return fields


def _written(header: bytes, field: Field, number: int) -> Mutation:
    if not field.is_text:
        return Mutation(((field.offset, (number % 2 ** (8 * field.num_bytes)).to_bytes(field.num_bytes, "little")),))
    # A number of another width moves the text after it, into or out of the spaces that end a header.
    moved = str(number).encode() + header[field.offset + field.num_bytes :]
    room = len(header) - field.offset
    return Mutation(((field.offset, moved[:room].ljust(room)),))


def _read(header: bytes, field: Field) -> int:
    stored = header[field.offset : field.offset + field.num_bytes]
    return int(stored) if field.is_text else int.from_bytes(stored, "little")


def _flip_bits(choose: random.Random, header: bytes, fields: Sequence[Field]) -> Mutation:
    # Half of the flips near the front, where most of the structure is.
    reach = len(header) if choose.random() < 0.5 else min(len(header), 512)
    offsets = [choose.randrange(reach) for _ in range(choose.choice((1, 1, 2, 8)))]
    return Mutation(tuple((offset, bytes([header[offset] ^ (1 << choose.randrange(8))])) for offset in offsets))


def _cut(choose: random.Random, header: bytes, fields: Sequence[Field]) -> Mutation:
    return Mutation((), choose.randrange(len(header)))


def _absurd_number(choose: random.Random, header: bytes, fields: Sequence[Field]) -> Mutation:
    return _written(header, choose.choice(fields), choose.choice(ABSURD_NUMBERS))


def _near_number(choose: random.Random, header: bytes, fields: Sequence[Field]) -> Mutation:
    field = choose.choice(fields)
    return _written(header, field, max(0, _read(header, field) + choose.choice((-32, -8, -1, 1, 8, 32))))


def _copy_field(choose: random.Random, header: bytes, fields: Sequence[Field]) -> Mutation:
    return _written(header, choose.choice(fields), _read(header, choose.choice(fields)))


def _splice(choose: random.Random, header: bytes, fields: Sequence[Field]) -> Mutation:
    length = min(choose.choice((4, 8, 16, 64)), len(header))
    source, target = (choose.randrange(len(header) - length + 1) for _ in range(2))
    return Mutation(((target, header[source : source + length]),))


def _shift(choose: random.Random, header: bytes, fields: Sequence[Field]) -> Mutation:
    """Insert or delete a few bytes; the rest of the header moves, what follows it stays."""
    offset, length = choose.randrange(len(header)), choose.choice((1, 4, 8))
    if choose.random() < 0.5:
        moved = choose.randbytes(length) + header[offset:]
    else:
        moved = header[offset + length :] + choose.randbytes(length)
    return Mutation(((offset, moved[: len(header) - offset]),))
