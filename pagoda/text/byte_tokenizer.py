"""A vocabulary of the 256 bytes, for models that were made up and have none of their own."""

from __future__ import annotations

from pagoda.text.special_tokens import SpecialTokens
from pagoda.text.token_table import TokenTable, byte_fallback_bytes
from pagoda.text.tokenizer_parts import TokenizerParts


class ByteEncoder:
    def encode(self, text: str, parse_special: bool) -> list[int]:
        return list(text.encode())


def byte_tokenizer_parts() -> TokenizerParts:
    """Nothing ends an answer but its length."""
    pieces = [f"<0x{byte:02X}>" for byte in range(256)]
    return TokenizerParts(
        encoder=ByteEncoder(),
        table=TokenTable(pieces, (), (), byte_fallback_bytes),
        special=SpecialTokens(),
        ids={piece: number for number, piece in enumerate(pieces)},
        strips_leading_space=False,
    )
