"""A tokenizer from the metadata of a GGUF file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tokenizers import AddedToken

from pagoda.core.errors import ModelFileError
from pagoda.text import gguf_models
from pagoda.text.byte_level import byte_level_bytes
from pagoda.text.encoders import TextEncoder
from pagoda.text.gguf_vocabulary import PREFIX, GGUFVocabulary, MetadataReader, TokenKind, read_vocabulary
from pagoda.text.pre_tokenizers import pre_tokenizer_named
from pagoda.text.special_tokens import FillInTokens, SpecialTokens, find_end_of_generation, find_fill_in
from pagoda.text.token_table import TokenTable, byte_fallback_bytes, sentencepiece_bytes
from pagoda.text.tokenizer_parts import TokenizerParts

_ALWAYS_SHOWN_NAMES = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")
_FILL_IN_KEYS = {
    "prefix": ("fim_pre_token_id", "prefix_token_id"),
    "suffix": ("fim_suf_token_id", "suffix_token_id"),
    "middle": ("fim_mid_token_id", "middle_token_id"),
    "pad": ("fim_pad_token_id",),
    "repository": ("fim_rep_token_id",),
    "file_separator": ("fim_sep_token_id",),
}


@dataclass(frozen=True, slots=True)
class _Defaults:
    """What a kind of vocabulary assumes where its file is silent."""

    bos_id: int | None = None
    eos_id: int | None = None
    unknown_id: int | None = None
    adds_bos: bool = False
    adds_eos: bool = False
    adds_space_prefix: bool = False
    piece_bytes: Callable[[str], bytes] = sentencepiece_bytes


_DEFAULTS = {
    "gpt2": _Defaults(piece_bytes=byte_level_bytes),
    "gemma4": _Defaults(adds_bos=True, piece_bytes=byte_fallback_bytes),
    "llama": _Defaults(
        bos_id=1, eos_id=2, unknown_id=0, adds_bos=True, adds_space_prefix=True, piece_bytes=byte_fallback_bytes
    ),
    "bert": _Defaults(bos_id=101, unknown_id=100, adds_bos=True, adds_space_prefix=True),
    "t5": _Defaults(eos_id=1, unknown_id=2, adds_eos=True, adds_space_prefix=True, piece_bytes=byte_fallback_bytes),
}
_BERT_SEPARATOR_ID = 102


def read_gguf_tokenizer(metadata: Mapping[str, Any]) -> TokenizerParts:
    vocabulary = read_vocabulary(metadata)
    if vocabulary.model not in _DEFAULTS:
        known = ", ".join(sorted(_DEFAULTS))
        raise ModelFileError(f"{PREFIX}model: {vocabulary.model[:64]!r} is not supported; supported are {known}")
    reader = MetadataReader(metadata)
    defaults = _defaults_for(vocabulary)
    special = _read_special_tokens(vocabulary, reader, defaults)
    _settle_kinds(vocabulary, special)
    special = replace(special, special_ids=frozenset(vocabulary.ids_of_kind(TokenKind.CONTROL, TokenKind.UNKNOWN)))
    adds_space_prefix = reader.flag("add_space_prefix", defaults.adds_space_prefix) and defaults.adds_space_prefix
    return TokenizerParts(
        encoder=_build_encoder(vocabulary, reader, special, _added_tokens(vocabulary, metadata)),
        table=TokenTable(
            vocabulary.pieces,
            special.special_ids,
            frozenset(vocabulary.ids_of_kind(TokenKind.USER_DEFINED)),
            defaults.piece_bytes,
        ),
        special=special,
        ids=vocabulary.ids,
        strips_leading_space=adds_space_prefix,
        chat_template=_chat_template(metadata),
        template_variables=_template_variables(vocabulary, special),
    )


def _defaults_for(vocabulary: GGUFVocabulary) -> _Defaults:
    defaults = _DEFAULTS[vocabulary.model]
    if vocabulary.model == "gpt2":
        return replace(defaults, adds_bos=pre_tokenizer_named(vocabulary.pre).adds_bos)
    return defaults


def _read_special_tokens(vocabulary: GGUFVocabulary, reader: MetadataReader, defaults: _Defaults) -> SpecialTokens:
    num_tokens = len(vocabulary.pieces)

    def declared(name: str, default: int | None = None) -> int | None:
        found = reader.token_id(name, num_tokens)
        return found if found is not None else default if default is not None and default < num_tokens else None

    bos_id = declared("bos_token_id", declared("cls_token_id", defaults.bos_id))
    eos_id = declared("eos_token_id", defaults.eos_id)
    named_ends = find_end_of_generation(vocabulary.ids, lambda end: vocabulary.kinds[end] == TokenKind.CONTROL)
    declared_ends = [eos_id, declared("eot_token_id"), declared("eom_token_id")]
    suffix_id = eos_id
    adds_eos = reader.flag("add_eos_token", defaults.adds_eos)
    if vocabulary.model == "bert":
        suffix_id, adds_eos = declared("seperator_token_id", _BERT_SEPARATOR_ID), True
    adds_bos = reader.flag("add_bos_token", defaults.adds_bos) or vocabulary.model in ("bert", "gemma4")
    return SpecialTokens(
        bos_id=bos_id,
        eos_id=eos_id,
        pad_id=declared("padding_token_id"),
        unknown_id=declared("unknown_token_id", defaults.unknown_id),
        eos_ids=named_ends | {end for end in declared_ends if end is not None},
        prefix_ids=(bos_id,) if adds_bos and bos_id is not None else (),
        suffix_ids=(suffix_id,) if adds_eos and suffix_id is not None else (),
        fill_in=_read_fill_in(vocabulary, reader),
    )


def _read_fill_in(vocabulary: GGUFVocabulary, reader: MetadataReader) -> FillInTokens:
    declared: dict[str, int] = {}
    for role, names in _FILL_IN_KEYS.items():
        for name in names:
            token_id = reader.token_id(name, len(vocabulary.pieces))
            if token_id is not None:
                declared.setdefault(role, token_id)
    return find_fill_in(vocabulary.ids, declared)


def _settle_kinds(vocabulary: GGUFVocabulary, special: SpecialTokens) -> None:
    """Tokens that end or frame an answer are control tokens even where a careless file calls them text."""
    for token_id in special.eos_ids.union(special.fill_in.ids()):
        vocabulary.kinds[token_id] = TokenKind.CONTROL
    for name in _ALWAYS_SHOWN_NAMES:
        if name in vocabulary.ids:
            vocabulary.kinds[vocabulary.ids[name]] = TokenKind.USER_DEFINED


def _added_tokens(vocabulary: GGUFVocabulary, metadata: Mapping[str, Any]) -> list[tuple[int, AddedToken]]:
    """Tokens that are found in the text before anything else; some families drop the spaces beside them."""
    name = str(metadata.get("general.name", "")).lower()
    eats_right = "phi-3" in name or "phi3" in name
    keeps_right = {"<unk>", "<s>", "<|endoftext|>"}
    eats_left = {"<mask>"} if _eats_left_of_mask(vocabulary.pre, metadata) else set()
    added = []
    for token_id in vocabulary.ids_of_kind(TokenKind.CONTROL, TokenKind.UNKNOWN, TokenKind.USER_DEFINED):
        piece = vocabulary.pieces[token_id]
        token = AddedToken(
            piece,
            lstrip=piece in eats_left,
            rstrip=eats_right and piece not in keeps_right,
            normalized=False,
            special=vocabulary.kinds[token_id] != TokenKind.USER_DEFINED,
        )
        added.append((token_id, token))
    return added


def _eats_left_of_mask(pre: str, metadata: Mapping[str, Any]) -> bool:
    architecture = str(metadata.get("general.architecture", ""))
    return pre in ("jina-v2-de", "jina-v2-es", "jina-v2-code") or architecture in ("nomic-bert-moe", "jina-bert-v3")


def _build_encoder(
    vocabulary: GGUFVocabulary, reader: MetadataReader, special: SpecialTokens, added: list[tuple[int, AddedToken]]
) -> TextEncoder:
    if vocabulary.model == "gpt2":
        return gguf_models.byte_level_encoder(vocabulary, added)
    if vocabulary.model == "gemma4":
        return gguf_models.spaced_encoder(vocabulary, added)
    if vocabulary.model == "llama":
        adds_space_prefix = reader.flag("add_space_prefix", True)
        return gguf_models.sentencepiece_encoder(vocabulary, added, special.unknown_id, adds_space_prefix)
    if special.unknown_id is None:
        raise ModelFileError(f"{PREFIX}unknown_token_id: missing, and this kind of vocabulary cannot do without")
    if vocabulary.model == "bert":
        return gguf_models.word_piece_encoder(vocabulary, added, special.unknown_id, reader)
    return gguf_models.unigram_encoder(vocabulary, added, special.unknown_id, reader)


def _chat_template(metadata: Mapping[str, Any]) -> str | None:
    template = metadata.get("tokenizer.chat_template")
    if template is not None and not isinstance(template, str):
        raise ModelFileError(f"tokenizer.chat_template: expected a string, but it is a {type(template).__name__}")
    return template or None


def _template_variables(vocabulary: GGUFVocabulary, special: SpecialTokens) -> dict[str, str]:
    named = {
        "bos_token": special.bos_id,
        "eos_token": special.eos_id,
        "pad_token": special.pad_id,
        "unk_token": special.unknown_id,
    }
    return {name: vocabulary.pieces[token_id] for name, token_id in named.items() if token_id is not None}
