"""GGUF metadata: special tokens are found, and damaged metadata is refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagoda.core.errors import InvalidRequest, ModelFileError
from pagoda.text import Tokenizer
from pagoda.text.byte_level import BYTE_OF_CHARACTER
from pagoda.text.pre_tokenizers import PRE_TOKENIZER_NAMES, pre_tokenizer_named

LETTERS = list(BYTE_OF_CHARACTER)
PIECES = [
    *LETTERS,
    "he",
    "ll",
    "hell",
    "hello",
    "Ġw",
    "<|im_end|>",
    "<|endoftext|>",
    "</s>",
    "<|fim_prefix|>",
    "[MARK]",
]
END, TEXT_END, TAG, FILL, MARK = (PIECES.index(piece) for piece in PIECES[-5:])


def metadata(**changes: Any) -> dict[str, Any]:
    kinds = np.ones(len(PIECES), np.int32)
    kinds[[END, TEXT_END]] = 3
    kinds[MARK] = 4
    values = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": PIECES,
        "token_type": kinds,
        "merges": ["h e", "l l", "he ll", "hell o", "Ġ w"],
        "bos_token_id": TEXT_END,
        "eos_token_id": TEXT_END,
        **changes,
    }
    return {f"tokenizer.ggml.{name}": value for name, value in values.items() if value is not None}


def test_encodes_and_decodes() -> None:
    tokenizer = Tokenizer.from_gguf(metadata())
    tokens = tokenizer.encode("hello wé")
    assert [tokenizer.id_to_piece(token) for token in tokens] == ["hello", "Ġw", "Ã", "©"]
    assert tokenizer.decode(tokens) == "hello wé"
    assert [tokenizer.token_bytes(token) for token in tokens] == [b"hello", b" w", b"\xc3", b"\xa9"]
    assert tokenizer.vocab_size == len(PIECES)
    assert tokenizer.piece_to_id("hello") == PIECES.index("hello")
    assert tokenizer.encode("") == []


def test_special_tokens() -> None:
    tokenizer = Tokenizer.from_gguf(metadata())
    # The HTML tag is an ordinary token of this vocabulary, so it ends nothing.
    assert tokenizer.eos_ids == {END, TEXT_END}
    assert tokenizer.special_ids == {END, TEXT_END, FILL}
    assert tokenizer.fill_in.prefix == FILL
    assert tokenizer.encode("<|im_end|>[MARK]") == [END, MARK]
    plain = tokenizer.encode("<|im_end|>[MARK]", parse_special=False)
    assert END not in plain
    assert plain[-1] == MARK
    assert tokenizer.decode([END, MARK]) == "<|im_end|>[MARK]"
    assert tokenizer.decode([END, MARK], skip_special_tokens=True) == "[MARK]"
    assert tokenizer.token_bytes(END) == b""
    assert tokenizer.token_bytes(END, show_special=True) == b"<|im_end|>"


def test_beginning_and_end_are_added_as_the_file_says() -> None:
    tokenizer = Tokenizer.from_gguf(metadata(add_bos_token=True, add_eos_token=True, eos_token_id=END))
    assert tokenizer.add_bos
    assert tokenizer.add_eos
    assert tokenizer.encode("he") == [TEXT_END, PIECES.index("he"), END]
    assert tokenizer.encode("he", add_special_tokens=False) == [PIECES.index("he")]
    assert Tokenizer.from_gguf(metadata(pre="llama-bpe")).add_bos
    assert not Tokenizer.from_gguf(metadata()).add_bos


def test_the_chat_template_is_handed_on() -> None:
    values = metadata() | {"tokenizer.chat_template": "{{ bos_token }}"}
    tokenizer = Tokenizer.from_gguf(values)
    assert tokenizer.chat_template == "{{ bos_token }}"
    assert tokenizer.template_variables["bos_token"] == "<|endoftext|>"


def test_texts_that_cannot_be_encoded_are_refused() -> None:
    tokenizer = Tokenizer.from_gguf(metadata())
    with pytest.raises(InvalidRequest, match="surrogate"):
        tokenizer.encode("a\ud800")
    with pytest.raises(InvalidRequest, match="limit is 4"):
        tokenizer.encode("ééé", max_bytes=4)
    assert tokenizer.encode("éé", max_bytes=4)


@pytest.mark.parametrize("token", [-1, len(PIECES), 10**12])
def test_ids_outside_the_vocabulary_are_refused(token: int) -> None:
    tokenizer = Tokenizer.from_gguf(metadata())
    with pytest.raises(InvalidRequest, match="outside the vocabulary"):
        tokenizer.decode([token])


BROKEN: list[tuple[str, dict[str, Any]]] = [
    ("model", {"model": None}),
    ("model", {"model": 3}),
    ("model", {"model": "rwkv"}),
    ("pre", {"pre": "no-such"}),
    ("pre", {"pre": 7}),
    ("tokens", {"tokens": None}),
    ("tokens", {"tokens": []}),
    ("tokens", {"tokens": "abc"}),
    ("tokens", {"tokens": [1, 2]}),
    ("tokens", {"tokens": PIECES[:-1] + ["a"]}),
    ("token_type", {"token_type": [1]}),
    ("token_type", {"token_type": "x"}),
    ("token_type", {"token_type": [[1], [2]]}),
    ("scores", {"scores": [0.0]}),
    ("scores", {"scores": [float("nan")] * len(PIECES)}),
    ("merges", {"merges": None}),
    ("merges", {"merges": []}),
    ("merges", {"merges": ["he"]}),
    ("merges", {"merges": ["x unknown-token"]}),
    ("merges", {"merges": ["h l"]}),
    ("merges", {"merges": [b"h e"]}),
    ("bos_token_id", {"bos_token_id": -1}),
    ("bos_token_id", {"bos_token_id": len(PIECES)}),
    ("bos_token_id", {"bos_token_id": "1"}),
    ("eos_token_id", {"eos_token_id": True}),
    ("add_bos_token", {"add_bos_token": 1}),
    ("precompiled_charsmap", {"model": "t5", "precompiled_charsmap": [1, 2, 3], "unknown_token_id": 0}),
    ("precompiled_charsmap", {"model": "t5", "precompiled_charsmap": [255] * 64, "unknown_token_id": 0}),
]


@pytest.mark.parametrize(("key", "changes"), BROKEN)
def test_broken_metadata_is_refused_by_the_name_of_its_key(key: str, changes: dict[str, Any]) -> None:
    with pytest.raises(ModelFileError, match=f"tokenizer.ggml.{key}") as refusal:
        Tokenizer.from_gguf(metadata(**changes))
    assert "\n" not in str(refusal.value)


junk = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**40), 2**40),
    st.floats(),
    st.text(max_size=8),
    st.binary(max_size=8),
    st.lists(st.integers(-9, 300), max_size=300),
    st.lists(st.text(max_size=6), max_size=300),
    st.just(PIECES),
    st.just([0] * len(PIECES)),
)
keys = st.sampled_from(
    [
        "pre",
        "tokens",
        "token_type",
        "scores",
        "merges",
        "bos_token_id",
        "eos_token_id",
        "unknown_token_id",
        "add_bos_token",
        "add_space_prefix",
        "precompiled_charsmap",
        "seperator_token_id",
        "remove_extra_whitespaces",
        "normalizer.lowercase",
    ]
)


@settings(max_examples=400)
@given(st.sampled_from(["gpt2", "llama", "bert", "t5", "gemma4"]), st.dictionaries(keys, junk, max_size=4), st.text())
def test_hostile_metadata_is_refused_or_works(model: str, changes: dict[str, Any], text: str) -> None:
    try:
        tokenizer = Tokenizer.from_gguf(metadata(**{**changes, "model": model}))
        tokens = tokenizer.encode(text)
        assert all(0 <= token < tokenizer.vocab_size for token in tokens)
        tokenizer.decode(tokens)
    except (ModelFileError, InvalidRequest) as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize("name", sorted(PRE_TOKENIZER_NAMES))
def test_every_pre_tokenizer_keeps_every_character(name: str) -> None:
    pre_tokenizer = pre_tokenizer_named(name).build()
    for text in (
        "Hello, y'all!  It's 12345 — ok?\r\n\n\t x\u3000漢字かな 가 éÉ ʼn 🚀\u200d ",
        " " * 50,
        "'" * 30,
        "\n \n",
    ):
        shown = bytes(BYTE_OF_CHARACTER[c] for piece, _ in pre_tokenizer.pre_tokenize_str(text) for c in piece)
        assert shown == text.encode()
