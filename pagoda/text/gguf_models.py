"""The four kinds of vocabulary that GGUF files carry, each built into the encoder that reads text with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tokenizers
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers

from pagoda.core.errors import ModelFileError
from pagoda.text.encoders import LibraryEncoder, TextEncoder, library_faults
from pagoda.text.gguf_vocabulary import PREFIX, GGUFVocabulary, MetadataReader, TokenKind
from pagoda.text.pre_tokenizers import pre_tokenizer_named
from pagoda.text.sentencepiece import SentencePieceEncoder, SentencePieceModel, SpecialTokenSplitter
from pagoda.text.token_table import WORD_BORDER

# A character that no text may hold, put before names that only an added token may match.
_NONCHARACTER = "\ufdd0"
_LONGEST_WORD = 100

AddedTokens = Sequence[tuple[int, AddedToken]]


def byte_level_encoder(vocabulary: GGUFVocabulary, added: AddedTokens) -> TextEncoder:
    pre_tokenizer = pre_tokenizer_named(vocabulary.pre)
    with library_faults(PREFIX + "merges"):
        model = models.BPE(vocabulary.ids, _read_merges(vocabulary), ignore_merges=pre_tokenizer.ignore_merges)
    return _library_encoder(model, added, {"pre_tokenizer": pre_tokenizer.build()})


def spaced_encoder(vocabulary: GGUFVocabulary, added: AddedTokens) -> TextEncoder:
    """Merges over whole lines of plain text, with word borders for spaces and a token for each byte (Gemma 4)."""
    with library_faults(PREFIX + "merges"):
        model = models.BPE(vocabulary.ids, _read_merges(vocabulary), byte_fallback=True)
    parts = {
        "normalizer": normalizers.Replace(" ", WORD_BORDER),
        "pre_tokenizer": pre_tokenizers.Split(Regex(r"[^\n]+|\n+"), "isolated"),
    }
    return _library_encoder(model, added, parts)


def sentencepiece_encoder(
    vocabulary: GGUFVocabulary, added: AddedTokens, unknown_id: int | None, adds_space_prefix: bool
) -> TextEncoder:
    costs = dict(zip(vocabulary.pieces, (-vocabulary.scores).tolist(), strict=True))
    for token_id in vocabulary.ids_of_kind(TokenKind.CONTROL, TokenKind.UNKNOWN, TokenKind.BYTE):
        del costs[vocabulary.pieces[token_id]]
    model = SentencePieceModel(vocabulary.ids, costs, _byte_ids(vocabulary), unknown_id, adds_space_prefix)
    return SentencePieceEncoder(model, SpecialTokenSplitter(added))


def word_piece_encoder(
    vocabulary: GGUFVocabulary, added: AddedTokens, unknown_id: int, reader: MetadataReader
) -> TextEncoder:
    lowercase = reader.flag("normalizer.lowercase", True)
    literal = {token_id for token_id, _ in added}
    ids = {
        piece if token_id in literal else _marked_as_continuation(piece): token_id
        for token_id, piece in enumerate(vocabulary.pieces)
    }
    if len(ids) != len(vocabulary.pieces):
        raise ModelFileError(f"{PREFIX}tokens: a word and the continuation of a word go by the same name")
    unknown = vocabulary.pieces[unknown_id]
    if ids.get(unknown) != unknown_id:
        raise ModelFileError(f"{PREFIX}unknown_token_id: {unknown[:64]!r} is not marked as a special token")
    with library_faults(PREFIX + "tokens"):
        model = models.WordPiece(ids, unk_token=unknown, max_input_chars_per_word=_LONGEST_WORD)
    parts = {
        "normalizer": normalizers.BertNormalizer(
            lowercase=lowercase, strip_accents=reader.flag("normalizer.strip_accents", lowercase)
        ),
        "pre_tokenizer": pre_tokenizers.BertPreTokenizer(),
    }
    return _library_encoder(model, added, parts)


def unigram_encoder(
    vocabulary: GGUFVocabulary, added: AddedTokens, unknown_id: int, reader: MetadataReader
) -> TextEncoder:
    scores = vocabulary.scores.astype(np.float64)
    # Names of control tokens are no text: they are hidden from the search, and free so as not to move its bounds.
    hidden = vocabulary.ids_of_kind(TokenKind.CONTROL, TokenKind.UNKNOWN, TokenKind.BYTE)
    scores[hidden + vocabulary.ids_of_kind(TokenKind.USER_DEFINED)] = 0.0
    pieces = [
        f"{_NONCHARACTER}{token_id}" if token_id in hidden else piece
        for token_id, piece in enumerate(vocabulary.pieces)
    ]
    with library_faults(PREFIX + "tokens"):
        model = models.Unigram(list(zip(pieces, scores.tolist(), strict=True)), unknown_id, False)
    parts = {"normalizer": _unigram_normalizer(reader), "pre_tokenizer": _unigram_pre_tokenizer(reader)}
    return _library_encoder(model, added, parts)


def _unigram_normalizer(reader: MetadataReader) -> Any:
    steps: list[Any] = []
    rules = reader.numbers("precompiled_charsmap", np.uint8, None)
    if rules is not None:
        data = rules.tobytes()
        trie_bytes = int.from_bytes(data[:4], "little")
        if len(data) < 8 or trie_bytes % 4 or trie_bytes + 4 >= len(data):
            raise ModelFileError(f"{PREFIX}precompiled_charsmap: its first word does not fit its {len(data)} bytes")
        with library_faults(PREFIX + "precompiled_charsmap"):
            steps.append(normalizers.Precompiled(data))
    steps.append(normalizers.Replace(_NONCHARACTER, "\ufffd"))
    return normalizers.Sequence(steps)


def _unigram_pre_tokenizer(reader: MetadataReader) -> Any:
    scheme = "always" if reader.flag("add_space_prefix", True) else "never"
    if not reader.flag("remove_extra_whitespaces", False):
        return pre_tokenizers.Metaspace(WORD_BORDER, scheme, split=False)
    words = pre_tokenizers.Split(Regex(" +"), "removed")
    return pre_tokenizers.Sequence([words, pre_tokenizers.Metaspace(WORD_BORDER, "always", split=False)])


def _library_encoder(model: Any, added: AddedTokens, parts: dict[str, Any]) -> LibraryEncoder:
    def build() -> tokenizers.Tokenizer:
        tokenizer = tokenizers.Tokenizer(model)
        for name, part in parts.items():
            setattr(tokenizer, name, part)
        tokenizer.add_tokens([token for _, token in added])
        return tokenizer

    with library_faults(PREFIX + "tokens"):
        parsing = build()
    return LibraryEncoder(parsing, build, _renamed_ids(parsing, added))


def _renamed_ids(tokenizer: tokenizers.Tokenizer, added: AddedTokens) -> dict[int, int]:
    """The library numbers added tokens itself when its model does not know them by name; this leads back to ours."""
    renamed: dict[int, int] = {}
    for token_id, token in added:
        library_id = tokenizer.token_to_id(token.content)
        if library_id is not None and library_id != token_id:
            renamed[library_id] = token_id
    return renamed


def _read_merges(vocabulary: GGUFVocabulary) -> Any:
    """Pairs of pieces; the library itself refuses a pair that is not in the vocabulary."""
    if not vocabulary.merges:
        raise ModelFileError(f"{PREFIX}merges: missing, and this kind of vocabulary cannot do without")
    pairs = [tuple(merge.split(" ", 1)) for merge in vocabulary.merges]
    if set(map(len, pairs)) != {2}:
        broken = next(merge for merge in vocabulary.merges if " " not in merge)
        raise ModelFileError(f"{PREFIX}merges: {broken[:64]!r} is not two pieces with a space between")
    return pairs


def _byte_ids(vocabulary: GGUFVocabulary) -> tuple[int, ...] | None:
    found = [vocabulary.ids.get(f"<0x{byte:02X}>") for byte in range(256)]
    complete = tuple(token_id for token_id in found if token_id is not None)
    return complete if len(complete) == 256 else None


def _marked_as_continuation(piece: str) -> str:
    return piece[1:] if piece.startswith(WORD_BORDER) else "##" + piece
