"""Tokenizers as a model needs them: with every token that it can draw."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pagoda import LLM, SamplingParams
from pagoda.core.errors import InvalidRequest
from pagoda.text.loading import load_or_make_tokenizer, load_tokenizer
from pagoda.weights.checkpoint import open_checkpoint
from tests.engine.conftest import save_tokenizer
from tests.kernels.cpu.families import make_family
from tests.models.tiny import VOCAB_SIZE


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_tokenizer(tmp_path)
    make_family("llama", tmp_path)
    return tmp_path


def with_vocab_size(folder: Path, value: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"vocab_size": value}))


def test_a_token_without_a_piece_is_no_text(folder: Path) -> None:
    with open_checkpoint(folder) as checkpoint:
        few = load_tokenizer(checkpoint, folder).vocab_size
    with_vocab_size(folder, few + 64)
    with open_checkpoint(folder) as checkpoint:
        tokenizer = load_tokenizer(checkpoint, folder)
    assert tokenizer.vocab_size == few + 64
    assert tokenizer.decode([3, few, few + 63]) == tokenizer.decode([3])
    assert tokenizer.id_to_piece(few) == "" and tokenizer.token_bytes(few, show_special=True) == b""
    with pytest.raises(InvalidRequest, match=f"outside the vocabulary of {few + 64} tokens"):
        tokenizer.decode([few + 64])


@pytest.mark.parametrize("value", [None, "many", True, -5, 10**15])
def test_a_size_that_is_none_takes_no_memory(value: Any, folder: Path) -> None:
    with_vocab_size(folder, value)
    with open_checkpoint(folder) as checkpoint:
        assert load_tokenizer(checkpoint, folder).encode("a")


def test_an_answer_of_such_tokens_is_told_in_full(tmp_path: Path) -> None:
    """The vocabulary made up for a model without one has 256 tokens, and the model more."""
    make_family("llama", tmp_path)
    with_vocab_size(tmp_path, 2 * VOCAB_SIZE + 300)
    with open_checkpoint(tmp_path) as checkpoint:
        assert load_or_make_tokenizer(checkpoint, tmp_path).vocab_size == 2 * VOCAB_SIZE + 300
    sampling = SamplingParams(max_tokens=30, temperature=1.0, seed=1, logprobs=20, ignore_eos=True)
    with LLM(tmp_path, load_format="dummy", max_model_len=64) as llm:
        [output] = llm.generate(["abc"], sampling, use_tqdm=False)
    [answer] = output.outputs
    assert max(answer.token_ids) >= 256 and len(answer.logprobs or ()) == 30
