"""A tiny random Llama with a tokenizer and a chat template, saved as a folder like those on the Hub."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from pagoda import LLM
from pagoda.kernels.cpu.library import available_instruction_sets
from tests.models.tiny import SMALL, randomize

END = "</s>"
SPECIAL = ["<s>", END, "<|user|>", "<|assistant|>"]
TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
CORPUS = [
    "the engine plans a step, runs it and commits what came of it",
    "a page holds sixteen tokens, and a row holds a list of pages",
    "who waits longest goes first; who came last is pushed back first",
]
VOCAB_SIZE = 320
# Widths that the native kernels take, too.
SIZES = SMALL | {"vocab_size": VOCAB_SIZE, "max_position_embeddings": 512, "hidden_size": 64, "head_dim": 16}
KERNELS = ["reference", "native"] if available_instruction_sets() else ["reference"]

MakeLLM = Callable[..., LLM]


def save_tokenizer(folder: Path, more_special: tuple[str, ...] = (), **changes: Any) -> None:
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    tokenizer.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=[*SPECIAL, *more_special],
        initial_alphabet=alphabet,
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"eos_token": END, "bos_token": "<s>", "chat_template": TEMPLATE} | changes
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


@pytest.fixture(scope="session")
def tiny_reference() -> PreTrainedModel:
    """Larger steps between logits than a trained model has, so that few choices are close."""
    return randomize(LlamaForCausalLM(LlamaConfig(**SIZES)), seed=11)


@pytest.fixture(scope="session")
def tiny_folder(tiny_reference: PreTrainedModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny-llama")
    tiny_reference.save_pretrained(folder)
    save_tokenizer(folder)
    return folder


@pytest.fixture
def make_llm(tiny_folder: Path) -> Iterator[MakeLLM]:
    """Builds engines on the tiny model and closes them after the test."""
    made: list[LLM] = []

    def make(**settings: Any) -> LLM:
        made.append(LLM(tiny_folder, **{"max_num_seqs": 8, "max_num_batched_tokens": 64, "num_threads": 1} | settings))
        return made[-1]

    yield make
    for llm in made:
        llm.close()


@pytest.fixture
def llm(make_llm: MakeLLM) -> LLM:
    return make_llm()
