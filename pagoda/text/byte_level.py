"""The printable alphabet that byte-level vocabularies spell raw bytes with: one character for each of the 256 bytes."""

from __future__ import annotations


def _build_alphabet() -> dict[str, int]:
    """Printable Latin-1 characters stand for themselves; the other bytes take the code points from 256 on, in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update({chr(256 + index): byte for index, byte in enumerate(others)})
    return alphabet


BYTE_OF_CHARACTER = _build_alphabet()


def byte_level_bytes(piece: str) -> bytes:
    """The bytes a byte-level piece spells; a piece outside the alphabet (an added token) stands for its own text."""
    try:
        return bytes([BYTE_OF_CHARACTER[character] for character in piece])
    except KeyError:
        return piece.encode("utf-8", "replace")
