"""Hugging Face folders, against the library's own tokenizer and transformers on vocabularies trained here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers

from pagoda.core.errors import ModelFileError
from pagoda.text import Detokenizer, Tokenizer

CORPUS = ["Hello world, this is a test of 123 words.", "Schöne Grüße aus München!", "naïve café 日本語 🚀"] * 10
NAMES = ["<s>", "<|im_end|>", "<|endoftext|>"]


def byte_level() -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet))
    return tokenizer


def sentencepiece_like() -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    names = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=500, special_tokens=names))
    # Byte tokens are ordinary tokens of the model, not added ones.
    described = json.loads(tokenizer.to_str())
    described["added_tokens"] = described["added_tokens"][:1]
    return tokenizers.Tokenizer.from_str(json.dumps(described))


BUILDERS = {"byte level": byte_level, "sentencepiece": sentencepiece_like}


def save(folder: Path, tokenizer: tokenizers.Tokenizer, **config: Any) -> Path:
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in NAMES])
    bos = tokenizer.token_to_id("<s>")
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", bos)])
    tokenizer.save(str(folder / "tokenizer.json"))
    values = {"bos_token": "<s>", "eos_token": {"content": "<|endoftext|>"}, **config}
    (folder / "tokenizer_config.json").write_text(json.dumps(values))
    return folder


@pytest.fixture(scope="module", params=list(BUILDERS))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokenizer, Any]:
    from transformers import PreTrainedTokenizerFast

    folder = save(tmp_path_factory.mktemp("folder"), BUILDERS[request.param]())
    reference = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), bos_token="<s>")
    return Tokenizer.from_folder(folder), reference


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=50))
def test_tokens_and_text_are_those_of_transformers(pair: tuple[Tokenizer, Any], text: str) -> None:
    tokenizer, reference = pair
    tokens = tokenizer.encode(text)
    assert tokens == reference.encode(text)
    plain = tokenizer.encode(text, add_special_tokens=False)
    detokenizer = Detokenizer(tokenizer)
    streamed = "".join(map(detokenizer.push, plain)) + detokenizer.flush()
    assert streamed == tokenizer.decode(plain) == reference.decode(plain, clean_up_tokenization_spaces=False)


def test_special_tokens_are_found(pair: tuple[Tokenizer, Any]) -> None:
    tokenizer, _ = pair
    names = [tokenizer.piece_to_id(name) for name in NAMES]
    assert tokenizer.bos_id == names[0]
    assert tokenizer.eos_ids == set(names[1:])
    assert tokenizer.add_bos
    assert not tokenizer.add_eos
    assert tokenizer.special_ids >= set(names)
    assert tokenizer.encode("<|im_end|>", add_special_tokens=False) == [names[1]]
    assert names[1] not in tokenizer.encode("<|im_end|>", parse_special=False)
    assert tokenizer.decode([names[1]], skip_special_tokens=True) == ""


def test_ends_of_the_generation_settings_count(tmp_path: Path) -> None:
    folder = save(tmp_path, byte_level())
    (folder / "generation_config.json").write_text('{"eos_token_id": [7, 9]}')
    assert Tokenizer.from_folder(folder).eos_ids >= {7, 9}


def test_chat_templates_in_three_places(tmp_path: Path) -> None:
    folder = save(tmp_path, byte_level(), chat_template="one")
    assert Tokenizer.from_folder(folder).chat_template == "one"
    named = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "two"}]
    save(tmp_path, byte_level(), chat_template=named)
    assert Tokenizer.from_folder(folder).chat_template == "two"
    (folder / "chat_template.jinja").write_text("three")
    tokenizer = Tokenizer.from_folder(folder)
    assert tokenizer.chat_template == "three"
    assert tokenizer.template_variables == {"bos_token": "<s>", "eos_token": "<|endoftext|>"}


def broken(text: str) -> Any:
    return lambda folder: (folder / "tokenizer.json").write_text(text)


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "tokenizer.json").unlink(),
        broken(""),
        broken("[]"),
        broken('{"model": {}}'),
        broken('{"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}}'),
        broken('{"added_tokens": [{"id": -1, "content": "x"}]}'),
        broken('{"added_tokens": 3}'),
        broken("{" * 100_000),
        lambda folder: (folder / "tokenizer_config.json").write_text("nonsense"),
        lambda folder: (folder / "tokenizer_config.json").write_text('{"chat_template": 3}'),
        lambda folder: (folder / "generation_config.json").write_text('{"eos_token_id": "x"}'),
        lambda folder: (folder / "generation_config.json").write_text('{"eos_token_id": [-1]}'),
        lambda folder: (folder / "chat_template.jinja").write_bytes(b"\xff"),
    ],
)
def test_damaged_folders_are_refused(tmp_path: Path, damage: Any) -> None:
    folder = save(tmp_path, byte_level())
    damage(folder)
    with pytest.raises(ModelFileError) as refusal:
        Tokenizer.from_folder(folder)
    assert "\n" not in str(refusal.value)
