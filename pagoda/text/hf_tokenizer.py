"""A tokenizer from a Hugging Face folder: `tokenizer.json`, and the small files beside it that name its tokens."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import tokenizers
from tokenizers import AddedToken

from pagoda.core.errors import ModelFileError
from pagoda.core.unreadable import UNREADABLE
from pagoda.text.encoders import LibraryEncoder, library_faults
from pagoda.text.hf_decoder import read_decoder
from pagoda.text.special_tokens import SpecialTokens, find_end_of_generation, find_fill_in
from pagoda.text.token_table import TokenTable
from pagoda.text.tokenizer_parts import TokenizerParts
from pagoda.weights.json_file import read_json_object

_FILE = "tokenizer.json"
_MAX_FILE_BYTES = 256 << 20
_MAX_TEMPLATE_BYTES = 1 << 20
_MAX_TOKENS = 1 << 24
_TOKEN_NAMES = ("bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token", "mask_token")

TokenId = Annotated[int, msgspec.Meta(ge=0, lt=_MAX_TOKENS)]


class _AddedToken(msgspec.Struct):
    id: TokenId
    content: str
    special: bool = False


class _TokenizerFile(msgspec.Struct):
    """The part of the file that this module reads itself; the rest is for the library."""

    added_tokens: list[_AddedToken] = []
    decoder: dict[str, Any] | None = None


def read_folder_tokenizer(folder: Path) -> TokenizerParts:
    data = _read_tokenizer_file(folder / _FILE)
    described = _describe(data)
    with library_faults(_FILE):
        library = tokenizers.Tokenizer.from_buffer(data)
        library.no_truncation()
        library.no_padding()
        ids = library.get_vocab(with_added_tokens=True)
    pieces = _pieces_by_id(ids)
    named = _named_tokens(folder)
    special = _special_tokens(folder, library, described, named, ids)
    piece_bytes, strips_leading_space = read_decoder(described.decoder)
    added_ids = frozenset(token.id for token in described.added_tokens)
    return TokenizerParts(
        encoder=LibraryEncoder(library, lambda: _literal_twin(library, [pieces[one] for one in special.fill_in.ids()])),
        table=TokenTable(pieces, special.special_ids, added_ids, piece_bytes),
        special=special,
        ids=ids,
        strips_leading_space=strips_leading_space,
        chat_template=_chat_template(folder),
        template_variables=named,
    )


def _literal_twin(library: tokenizers.Tokenizer, also_special: list[str]) -> tokenizers.Tokenizer:
    """For text that is only text. Files often leave it unsaid that fill-in tokens are special."""
    twin = tokenizers.Tokenizer.from_str(library.to_str())
    twin.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in also_special])
    return twin


def _read_tokenizer_file(path: Path) -> bytes:
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise ModelFileError(f"{_FILE}: larger than {_MAX_FILE_BYTES} bytes")
        return path.read_bytes()
    except FileNotFoundError:
        raise ModelFileError(f"{_FILE}: not in the folder; save the tokenizer in its fast form to make one") from None
    except OSError as error:
        raise ModelFileError(f"{_FILE}: cannot be read ({error.strerror})") from None


def _describe(data: bytes) -> _TokenizerFile:
    try:
        return msgspec.json.decode(data, type=_TokenizerFile)
    except UNREADABLE as error:
        raise ModelFileError(f"{_FILE}: {error}") from None


def _pieces_by_id(ids: Mapping[str, int]) -> list[str]:
    """Pieces in the order of their ids; an id that no token has keeps its place with an empty piece."""
    if not ids:
        raise ModelFileError(f"{_FILE}: the vocabulary is empty")
    largest = max(ids.values())
    if largest >= _MAX_TOKENS:
        raise ModelFileError(f"{_FILE}: the token id {largest} is out of bounds")
    pieces = [""] * (largest + 1)
    for piece, token_id in ids.items():
        pieces[token_id] = piece
    return pieces


def _read_optional(folder: Path, name: str) -> dict[str, Any]:
    path = folder / name
    return read_json_object(path) if path.is_file() else {}


def _named_tokens(folder: Path) -> dict[str, str]:
    """`bos_token` and its like. The configuration comes second, because it is the newer of the two files."""
    named: dict[str, str] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        values = _read_optional(folder, name)
        for key in _TOKEN_NAMES:
            text = _token_text(values.get(key))
            if text is not None:
                named[key] = text
    return named


def _token_text(value: object) -> str | None:
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _special_tokens(
    folder: Path,
    library: tokenizers.Tokenizer,
    described: _TokenizerFile,
    named: Mapping[str, str],
    ids: Mapping[str, int],
) -> SpecialTokens:
    def named_id(key: str) -> int | None:
        return ids.get(named[key]) if key in named else None

    special_ids = frozenset(token.id for token in described.added_tokens if token.special)
    by_name = {token.content: token.id for token in described.added_tokens}
    eos_id = named_id("eos_token")
    ends = find_end_of_generation(by_name, special_ids.__contains__) | _declared_ends(folder, len(ids))
    prefix_ids, suffix_ids = _frame(library)
    fill_in = find_fill_in(ids)
    return SpecialTokens(
        bos_id=named_id("bos_token"),
        eos_id=eos_id,
        pad_id=named_id("pad_token"),
        unknown_id=named_id("unk_token"),
        eos_ids=ends | ({eos_id} if eos_id is not None else set()),
        special_ids=special_ids.union(fill_in.ids()),
        prefix_ids=prefix_ids,
        suffix_ids=suffix_ids,
        fill_in=fill_in,
    )


def _declared_ends(folder: Path, num_tokens: int) -> frozenset[int]:
    declared = _read_optional(folder, "generation_config.json").get("eos_token_id")
    ends = declared if isinstance(declared, list) else [] if declared is None else [declared]
    for end in ends:
        if isinstance(end, bool) or not isinstance(end, int) or end < 0:
            raise ModelFileError(f"generation_config.json: eos_token_id {end!r} is not a token id")
    return frozenset(end for end in ends if end < num_tokens)


def _frame(library: tokenizers.Tokenizer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The tokens that the file's own template puts before and after a text."""
    with library_faults(_FILE):
        plain = library.encode("a", add_special_tokens=False).ids
        framed = library.encode("a", add_special_tokens=True).ids
    for start in range(len(framed) - len(plain) + 1):
        if framed[start : start + len(plain)] == plain:
            return tuple(framed[:start]), tuple(framed[start + len(plain) :])
    return (), ()


def _chat_template(folder: Path) -> str | None:
    path = folder / "chat_template.jinja"
    if path.is_file():
        if path.stat().st_size > _MAX_TEMPLATE_BYTES:
            raise ModelFileError(f"{path.name}: larger than {_MAX_TEMPLATE_BYTES} bytes")
        try:
            return path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise ModelFileError(f"{path.name}: not UTF-8") from None
    template = _read_optional(folder, "tokenizer_config.json").get("chat_template")
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        template = named.get("default")
    if template is not None and not isinstance(template, str):
        raise ModelFileError("tokenizer_config.json: chat_template is neither a string nor a list of named strings")
    return template or None
