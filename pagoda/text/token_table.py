"""What each token stands for: its piece in the vocabulary, its bytes in the text, and whether it is special."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from pagoda.core.errors import InvalidRequest

WORD_BORDER = "\u2581"  # how SentencePiece vocabularies spell a space


def is_byte_piece(piece: str) -> bool:
    return len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">")


def sentencepiece_bytes(piece: str) -> bytes:
    return piece.replace(WORD_BORDER, " ").encode("utf-8", "replace")


def byte_fallback_bytes(piece: str) -> bytes:
    """Like `sentencepiece_bytes`, where `<0x0A>` stands for the byte 10."""
    if is_byte_piece(piece):
        try:
            return bytes([int(piece[3:5], 16)])
        except ValueError:
            pass
    return sentencepiece_bytes(piece)


class TokenTable:
    """Pieces by id. Bytes are worked out on first use, since a vocabulary may hold 260,000 tokens and a text few.

    A model may have more tokens than its vocabulary has pieces, to round their number up. Such a token can be drawn,
    and stands for nothing.
    """

    def __init__(
        self,
        pieces: Sequence[str],
        special_ids: Collection[int],
        literal_ids: Collection[int],
        piece_bytes: Callable[[str], bytes],
    ) -> None:
        self._pieces = pieces
        self._special_ids = special_ids
        self._literal_ids = literal_ids
        self._piece_bytes = piece_bytes
        self._num_tokens = len(pieces)
        self._bytes: dict[int, bytes] = {}

    def __len__(self) -> int:
        return self._num_tokens

    def of_model(self, num_tokens: int) -> TokenTable:
        """The same for a model of at least so many tokens."""
        table = TokenTable(self._pieces, self._special_ids, self._literal_ids, self._piece_bytes)
        table._num_tokens = max(self._num_tokens, num_tokens)
        return table

    def piece(self, token_id: int) -> str:
        if not 0 <= token_id < self._num_tokens:
            raise InvalidRequest("token_ids", f"{token_id} is outside the vocabulary of {self._num_tokens} tokens")
        return self._pieces[token_id] if token_id < len(self._pieces) else ""

    def is_special(self, token_id: int) -> bool:
        return token_id in self._special_ids

    def text_bytes(self, token_id: int) -> bytes:
        """The bytes of any token; those of special and added tokens are their names, spelled as they are."""
        known = self._bytes.get(token_id)
        if known is None:
            piece = self.piece(token_id)
            is_literal = token_id in self._special_ids or token_id in self._literal_ids
            known = piece.encode("utf-8", "replace") if is_literal else self._piece_bytes(piece)
            self._bytes[token_id] = known
        return known
