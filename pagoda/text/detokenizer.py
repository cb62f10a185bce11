"""Tokens to text as they arrive: each token adds the text that no later token can change."""

from __future__ import annotations

import codecs

from pagoda.text.tokenizer import Tokenizer


class Detokenizer:
    """The pieces it returns, joined, are exactly `Tokenizer.decode` of the same ids.

    Each token costs the same however long the text has become: bytes go through an incremental UTF-8 decoder, which
    keeps back the beginning of a character. `continues_text` means as for `Tokenizer.decode`.
    """

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool = True, continues_text: bool = False) -> None:
        self._tokenizer = tokenizer
        self._shows_special = not skip_special_tokens
        self._strips_space = tokenizer.strips_leading_space and not continues_text
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """The text that has become certain with this token; often empty inside a character of several bytes."""
        data = self._tokenizer.token_bytes(token_id, self._shows_special)
        if self._strips_space and data:
            self._strips_space = False
            data = data.removeprefix(b" ")
        return self._decoder.decode(data)

    def flush(self) -> str:
        """What was kept back, at the end of the text: U+FFFD for a character that never came whole."""
        return self._decoder.decode(b"", final=True)
