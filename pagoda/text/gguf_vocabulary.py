"""The vocabulary in a GGUF header, checked field by field: from here on its lengths, types and ids can be relied on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from pagoda.core.errors import ModelFileError

PREFIX = "tokenizer.ggml."


class TokenKind(IntEnum):
    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True)
class GGUFVocabulary:
    """`pieces[i]` is token i, `ids` its inverse; `kinds` and `scores` are as long. No name is empty or there twice."""

    model: str
    pre: str
    pieces: list[str]
    ids: dict[str, int]
    kinds: np.ndarray
    scores: np.ndarray
    merges: list[str]

    def ids_of_kind(self, *kinds: TokenKind) -> list[int]:
        found: list[int] = np.flatnonzero(np.isin(self.kinds, kinds)).tolist()
        return found


class MetadataReader:
    """Typed access to the `tokenizer.ggml.*` keys; a value of another type is a `ModelFileError` naming the key."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self._metadata = metadata

    def text(self, name: str, default: str | None = None) -> str:
        value = self._metadata.get(PREFIX + name, default)
        if not isinstance(value, str):
            raise _wrong(name, "a string", value)
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self._metadata.get(PREFIX + name, default)
        if not isinstance(value, bool | np.bool_):
            raise _wrong(name, "true or false", value)
        return bool(value)

    def token_id(self, name: str, num_tokens: int) -> int | None:
        value = self._metadata.get(PREFIX + name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise _wrong(name, "a token id", value)
        if not 0 <= value < num_tokens:
            raise ModelFileError(f"{PREFIX}{name}: {value} is outside the vocabulary of {num_tokens} tokens")
        return int(value)

    def strings(self, name: str) -> list[str]:
        value = self._metadata.get(PREFIX + name)
        if not isinstance(value, Sequence) or isinstance(value, str | bytes):
            raise _wrong(name, "a list of strings", value)
        strings = list(value)
        if set(map(type, strings)) - {str}:
            raise _wrong(name, "a list of strings", value)
        return strings

    def numbers(self, name: str, dtype: type[np.generic], length: int | None) -> np.ndarray | None:
        """The array as `dtype`, copied so that it outlives the file; None where the key is absent."""
        value = self._metadata.get(PREFIX + name)
        if value is None:
            return None
        if not isinstance(value, np.ndarray | list | tuple):
            raise _wrong(name, "a list of numbers", value)
        try:
            array = np.asarray(value)
        except ValueError:
            raise _wrong(name, "a list of numbers", value) from None
        if array.ndim != 1 or array.dtype.kind not in "iuf":
            raise _wrong(name, "a list of numbers", value)
        if length is not None and len(array) != length:
            raise ModelFileError(f"{PREFIX}{name}: {len(array)} values for {length} tokens")
        return array.astype(dtype)


def read_vocabulary(metadata: Mapping[str, Any]) -> GGUFVocabulary:
    reader = MetadataReader(metadata)
    model = reader.text("model")
    pieces = reader.strings("tokens")
    if not pieces:
        raise ModelFileError(f"{PREFIX}tokens: the vocabulary is empty")
    if "" in pieces:
        pieces = [piece or f"[EMPTY_{token_id}]" for token_id, piece in enumerate(pieces)]
    ids = dict(zip(pieces, range(len(pieces)), strict=True))
    if len(ids) != len(pieces):
        twice = next(piece for token_id, piece in enumerate(pieces) if ids[piece] != token_id)
        raise ModelFileError(f"{PREFIX}tokens: {twice[:64]!r} stands in the vocabulary twice")
    return GGUFVocabulary(
        model=model,
        pre=reader.text("pre", ""),
        pieces=pieces,
        ids=ids,
        kinds=_read_kinds(reader, len(pieces)),
        scores=_read_scores(reader, len(pieces)),
        merges=reader.strings("merges") if PREFIX + "merges" in metadata else [],
    )


def _read_kinds(reader: MetadataReader, num_tokens: int) -> np.ndarray:
    kinds = reader.numbers("token_type", np.int64, num_tokens)
    if kinds is None:
        return np.full(num_tokens, TokenKind.NORMAL, np.uint8)
    known = (kinds >= 0) & (kinds <= max(TokenKind))
    return np.where(known, kinds, TokenKind.UNDEFINED).astype(np.uint8)


def _read_scores(reader: MetadataReader, num_tokens: int) -> np.ndarray:
    scores = reader.numbers("scores", np.float32, num_tokens)
    if scores is None:
        return np.zeros(num_tokens, np.float32)
    if not np.isfinite(scores).all():
        raise ModelFileError(f"{PREFIX}scores: holds a value that is not a finite number")
    return scores


def _wrong(name: str, expected: str, value: object) -> ModelFileError:
    found = "is missing" if value is None else f"is a {type(value).__name__}"
    return ModelFileError(f"{PREFIX}{name}: expected {expected}, but it {found}")
