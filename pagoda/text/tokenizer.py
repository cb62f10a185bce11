"""Text to tokens and back, the same for every vocabulary and file format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pagoda.core.errors import InvalidRequest
from pagoda.text.gguf_tokenizer import read_gguf_tokenizer
from pagoda.text.hf_tokenizer import read_folder_tokenizer
from pagoda.text.special_tokens import FillInTokens, SpecialTokens
from pagoda.text.tokenizer_parts import TokenizerParts


class Tokenizer:
    """Encodes text, decodes ids, and knows the tokens that have a job. Safe to share between threads."""

    def __init__(self, parts: TokenizerParts) -> None:
        self._encoder = parts.encoder
        self._table = parts.table
        self._ids = parts.ids
        self.special: SpecialTokens = parts.special
        self.strips_leading_space = parts.strips_leading_space
        self.chat_template: str | None = parts.chat_template
        self.template_variables: Mapping[str, str] = parts.template_variables

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any]) -> Tokenizer:
        return cls(read_gguf_tokenizer(metadata))

    @classmethod
    def from_folder(cls, folder: str | Path) -> Tokenizer:
        return cls(read_folder_tokenizer(Path(folder)))

    @property
    def vocab_size(self) -> int:
        return len(self._table)

    @property
    def bos_id(self) -> int | None:
        return self.special.bos_id

    @property
    def eos_id(self) -> int | None:
        return self.special.eos_id

    @property
    def eos_ids(self) -> frozenset[int]:
        """Every token that ends an answer, not only the one the file calls `eos`."""
        return self.special.eos_ids

    @property
    def special_ids(self) -> frozenset[int]:
        return self.special.special_ids

    @property
    def fill_in(self) -> FillInTokens:
        return self.special.fill_in

    @property
    def add_bos(self) -> bool:
        return bool(self.special.prefix_ids)

    @property
    def add_eos(self) -> bool:
        return bool(self.special.suffix_ids)

    def encode(
        self, text: str, add_special_tokens: bool = True, parse_special: bool = True, max_bytes: int | None = None
    ) -> list[int]:
        """Ids of `text`.

        `add_special_tokens` puts the model's own first and last tokens around it. With `parse_special=False` names of
        control tokens in the text are plain text. A text over `max_bytes` is refused before any work is done on it.
        """
        check_text(text, max_bytes)
        ids = self._encoder.encode(text, parse_special) if text else []
        if add_special_tokens:
            return [*self.special.prefix_ids, *ids, *self.special.suffix_ids]
        return ids

    def decode(self, token_ids: Iterable[int], skip_special_tokens: bool = False, continues_text: bool = False) -> str:
        """Text of `token_ids`; bytes that are no UTF-8 become U+FFFD.

        `continues_text` keeps the leading space that SentencePiece vocabularies put before a text: right for tokens
        that follow others, as an answer follows its prompt.
        """
        data = b"".join(self.token_bytes(token_id, not skip_special_tokens) for token_id in token_ids)
        if self.strips_leading_space and not continues_text and data.startswith(b" "):
            data = data[1:]
        return data.decode("utf-8", "replace")

    def token_bytes(self, token_id: int, show_special: bool = False) -> bytes:
        """The bytes that a token adds to a text: none for a special token, unless its name is asked for."""
        if not show_special and self._table.is_special(token_id):
            return b""
        return self._table.text_bytes(token_id)

    def token_text(self, token_id: int) -> str:
        """The token's own text, behind other tokens: what `decode` gives of it alone with `continues_text`."""
        return self._table.text_bytes(token_id).decode("utf-8", "replace")

    def id_to_piece(self, token_id: int) -> str:
        """The token as the vocabulary spells it."""
        return self._table.piece(token_id)

    def piece_to_id(self, piece: str) -> int | None:
        return self._ids.get(piece)


def check_text(text: str, max_bytes: int | None = None) -> None:
    # A text has at most four bytes a character and at least one, so most are settled without encoding them.
    if max_bytes is not None and len(text) > max_bytes:
        raise InvalidRequest("text", f"{len(text)} characters, the limit is {max_bytes} bytes; send a shorter text")
    try:
        num_bytes = len(text.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise InvalidRequest("text", f"half a surrogate pair at character {error.start} is not valid text") from None
    if max_bytes is not None and num_bytes > max_bytes:
        raise InvalidRequest("text", f"{num_bytes} bytes, the limit is {max_bytes}; send a shorter text")
