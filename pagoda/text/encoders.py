"""The one thing every tokenizer algorithm offers, and its form on top of the `tokenizers` library."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Protocol

import tokenizers

from pagoda.core.errors import ModelFileError


class TextEncoder(Protocol):
    def encode(self, text: str, parse_special: bool) -> list[int]:
        """Ids of `text`, without a beginning or end token; special tokens are recognised only if `parse_special`."""


@contextmanager
def library_faults(what: str) -> Iterator[None]:
    """Turn what the library raises on a damaged vocabulary into `ModelFileError`.

    A panic in its native code arrives as an exception outside `Exception`, so it is told apart by name.
    """
    try:
        yield
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            cause = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise ModelFileError(f"{what}: {cause}") from error
        raise


class LibraryEncoder:
    """Encodes with a library tokenizer, and with a twin that reads special tokens as plain text."""

    def __init__(
        self,
        parsing: tokenizers.Tokenizer,
        make_literal: Callable[[], tokenizers.Tokenizer],
        renamed_ids: Mapping[int, int] | None = None,
    ) -> None:
        self._parsing = parsing
        self._make_literal = make_literal
        self._renamed_ids = renamed_ids or {}

    @cached_property
    def _literal(self) -> tokenizers.Tokenizer:
        twin = self._make_literal()
        twin.encode_special_tokens = True
        return twin

    def encode(self, text: str, parse_special: bool) -> list[int]:
        with library_faults("tokenizer"):
            tokenizer = self._parsing if parse_special else self._literal
            ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
        if self._renamed_ids:
            ids = [self._renamed_ids.get(token_id, token_id) for token_id in ids]
        return ids
