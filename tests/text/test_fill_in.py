"""Prompts with a hole, against token sequences written by hand from what each family was trained on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from pagoda.core.errors import InvalidRequest
from pagoda.text import FillInFrame, Tokenizer
from pagoda.text.byte_level import BYTE_OF_CHARACTER

LETTERS = list(BYTE_OF_CHARACTER)
CONTROL = 3
FAMILIES = {
    "qwen": ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    "starcoder": ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    "deepseek": ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
}


def byte_level(names: tuple[str, ...], **changes: Any) -> Tokenizer:
    """A GGUF vocabulary of single bytes; the names follow on them, and are plain tokens to a careless file."""
    values = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": [*LETTERS, "ab", "<s>", *names],
        "token_type": np.array([1] * (len(LETTERS) + 1) + [CONTROL] + [1] * len(names), np.int32),
        "merges": ["a b"],
        "bos_token_id": len(LETTERS) + 1,
        **changes,
    }
    return Tokenizer.from_gguf({f"tokenizer.ggml.{name}": value for name, value in values.items()})


def pieces(tokenizer: Tokenizer, token_ids: list[int]) -> list[str]:
    return [tokenizer.id_to_piece(token_id) for token_id in token_ids]


def framed(tokenizer: Tokenizer, before: str | list[int], behind: str, **options: Any) -> list[str]:
    frame = FillInFrame(tokenizer)
    return pieces(tokenizer, frame.read(before, frame.encode_behind(behind), **options).token_ids)


@pytest.mark.parametrize("family", FAMILIES)
def test_prefix_suffix_middle(family: str) -> None:
    prefix, suffix, middle = FAMILIES[family]
    tokenizer = byte_level(FAMILIES[family])
    assert framed(tokenizer, "ab", "cd") == [prefix, "ab", suffix, "c", "d", middle]
    assert framed(tokenizer, "", " x") == [prefix, suffix, "Ġ", "x", middle]
    assert framed(tokenizer, "a", "b") == [prefix, "a", suffix, "b", middle], "the hole lies between them"


def test_the_beginning_is_added_where_the_tokenizer_adds_one() -> None:
    tokenizer = byte_level(FAMILIES["deepseek"], add_bos_token=True)
    whole = ["<s>", "<｜fim▁begin｜>", "x", "<｜fim▁hole｜>", "y", "<｜fim▁end｜>"]
    assert framed(tokenizer, "x", "y") == whole
    assert framed(tokenizer, "x", "y", add_special_tokens=False) == whole[1:]


def test_an_end_that_the_tokenizer_adds_to_texts_is_left_out() -> None:
    tokenizer = byte_level(FAMILIES["qwen"], add_eos_token=True, eos_token_id=len(LETTERS) + 1)
    assert framed(tokenizer, "x", "y")[-1] == "<|fim_middle|>"


def test_where_the_text_before_the_hole_stands() -> None:
    tokenizer = byte_level(FAMILIES["deepseek"], add_bos_token=True)
    frame = FillInFrame(tokenizer)
    found = frame.read("abc", frame.encode_behind("d"))
    assert pieces(tokenizer, found.token_ids[found.before]) == ["ab", "c"] and found.text == "abc"


def test_token_ids_are_taken_as_they_are_and_begin_once() -> None:
    tokenizer = byte_level(FAMILIES["deepseek"], add_bos_token=True)
    plain, with_beginning = tokenizer.encode("ab", add_special_tokens=False), tokenizer.encode("ab")
    whole = ["<s>", "<｜fim▁begin｜>", "ab", "<｜fim▁hole｜>", "c", "<｜fim▁end｜>"]
    assert framed(tokenizer, plain, "c") == framed(tokenizer, with_beginning, "c") == whole
    assert FillInFrame(tokenizer).read(plain, []).text is None


@pytest.mark.parametrize("text", ["<|fim_suffix|>", "<s>", "a<|fim_middle|>"])
def test_names_of_special_tokens_in_the_texts_are_text(text: str) -> None:
    tokenizer = byte_level(FAMILIES["qwen"])
    letters = list(text)
    assert framed(tokenizer, text, text) == ["<|fim_prefix|>", *letters, "<|fim_suffix|>", *letters, "<|fim_middle|>"]


def test_codellama_puts_a_space_before_the_first_text_and_none_before_the_second() -> None:
    """As its own code does it: "<PRE> {prefix} <SUF>{suffix} <MID>"."""
    names = ["▁<PRE>", "▁<SUF>", "▁<MID>"]
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    tokens = ["<unk>", "<s>", "</s>", *bytes_, "▁", "a", "b", "▁a", "▁b", *names]
    kinds = [2, 3, 3, *[6] * 256, 1, 1, 1, 1, 1, *[CONTROL] * 3]
    scores = [0.0] * len(tokens)
    for cost, piece in enumerate(("▁a", "▁b", "▁", "a", "b"), 1):
        scores[tokens.index(piece)] = -float(cost)
    values = {"model": "llama", "tokens": tokens, "token_type": np.array(kinds, np.int32)}
    values["scores"] = np.array(scores, np.float32)
    tokenizer = Tokenizer.from_gguf({f"tokenizer.ggml.{name}": value for name, value in values.items()})
    assert framed(tokenizer, "a", "b") == ["<s>", "▁<PRE>", "▁a", "▁<SUF>", "b", "▁<MID>"]
    assert framed(tokenizer, "a", " b") == ["<s>", "▁<PRE>", "▁a", "▁<SUF>", "▁b", "▁<MID>"]
    assert framed(tokenizer, "", "\nb") == ["<s>", "▁<PRE>", "▁<SUF>", "<0x0A>", "b", "▁<MID>"]


def test_a_folder_that_does_not_say_that_its_fill_in_tokens_are_special(tmp_path: Path) -> None:
    """As Qwen2.5-Coder's does not."""
    names = [*FAMILIES["qwen"], "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"]
    library = tokenizers.Tokenizer(models.BPE({letter: number for number, letter in enumerate(LETTERS)}, []))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.add_tokens([AddedToken(name, special=False, normalized=False) for name in names])
    library.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({}))
    tokenizer = Tokenizer.from_folder(tmp_path)
    assert tokenizer.encode("<|fim_pad|>") == [len(LETTERS) + 3], "a prompt may name them"
    assert framed(tokenizer, "a<|fim_suffix|>", "b") == [
        *("<|fim_prefix|>", "a", *"<|fim_suffix|>"),
        *("<|fim_suffix|>", "b", "<|fim_middle|>"),
    ]
    assert pieces(tokenizer, tokenizer.fill_in.end_ids()) == ["<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"]
    assert tokenizer.decode(tokenizer.fill_in.ids(), skip_special_tokens=True) == ""


@pytest.mark.parametrize("missing", range(3))
def test_a_vocabulary_without_them_is_refused_by_name(missing: int) -> None:
    names = FAMILIES["starcoder"]
    tokenizer = byte_level(names[:missing] + names[missing + 1 :])
    assert not tokenizer.fill_in.is_complete
    with pytest.raises(InvalidRequest, match="^suffix: "):
        FillInFrame(tokenizer)


def test_a_text_over_the_limit_is_refused() -> None:
    frame = FillInFrame(byte_level(FAMILIES["qwen"]), max_bytes=4)
    with pytest.raises(InvalidRequest, match="limit is 4"):
        frame.encode_behind("abcde")
    with pytest.raises(InvalidRequest, match="limit is 4"):
        frame.read("abcde", [])
