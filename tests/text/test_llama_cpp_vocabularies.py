"""Every vocabulary that comes with expected tokens gives exactly those; every template renders as in transformers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pagoda.core.errors import TemplateError
from pagoda.text import ChatTemplate, Tokenizer

pytestmark = pytest.mark.slow

COMPARED = [
    "bert-bge",
    "command-r",
    "deepseek-coder",
    "deepseek-llm",
    "falcon",
    "gemma-4",
    "gpt-2",
    "llama-bpe",
    "llama-spm",
    "mpt",
    "phi-3",
    "qwen2",
    "qwen35",
    "refact",
    "starcoder",
]
# These come without inputs and outputs, so there is nothing to compare with; they must load and come back whole.
NOT_COMPARABLE = ["aquila", "baichuan", "gpt-neox", "nomic-bert-moe"]
# WordPiece drops case and accents, and this unigram model rewrites the text, so decoding cannot give it back.
LOSSY = ("bert-bge", "nomic-bert-moe")
SEPARATOR = "\n__ggml_vocab_test__\n"

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The <weather> & more",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "description": "City"}, "days": {"type": "integer"}},
                "required": ["city"],
            },
        },
    }
]
CALL = {"id": "call00001", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Paris"}}}
CONVERSATIONS: list[tuple[list[dict[str, Any]], Any]] = [
    ([{"role": "user", "content": "Hello <b>&\n é?"}], None),
    (
        [
            {"role": "system", "content": "Be brief. "},
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello!"},
            {"role": "user", "content": " 2+2? "},
        ],
        None,
    ),
    ([{"role": "user", "content": "Weather in Paris?"}], TOOLS),
    (
        [
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "call00001", "name": "get_weather", "content": '{"t": 20}'},
            {"role": "user", "content": "Thanks"},
        ],
        TOOLS,
    ),
]


def vocabulary_path(models: Path, name: str) -> Path:
    return models / f"ggml-vocab-{name}.gguf"


def read_cases(path: Path) -> list[tuple[str, list[int]]]:
    texts = Path(f"{path}.inp").read_bytes().decode("utf-8").split(SEPARATOR)
    lines = Path(f"{path}.out").read_text().splitlines()
    if texts[-1] == "":
        texts.pop()
    assert len(texts) == len(lines) > 40
    return [(text, [int(token) for token in line.split()]) for text, line in zip(texts, lines, strict=True)]


def test_no_vocabulary_of_the_package_is_forgotten(llama_cpp_models: Path) -> None:
    found = {path.name.removeprefix("ggml-vocab-").removesuffix(".gguf") for path in llama_cpp_models.glob("*.gguf")}
    with_results = {name for name in found if Path(f"{vocabulary_path(llama_cpp_models, name)}.out").exists()}
    assert with_results == set(COMPARED)
    assert found - with_results == set(NOT_COMPARABLE)


@pytest.mark.parametrize("name", COMPARED)
def test_tokens_are_the_expected_ones(
    name: str, llama_cpp_models: Path, gguf_tokenizer: Callable[[Path], Tokenizer]
) -> None:
    path = vocabulary_path(llama_cpp_models, name)
    tokenizer = gguf_tokenizer(path)
    for text, expected in read_cases(path):
        assert tokenizer.encode(text, add_special_tokens=False, parse_special=False) == expected, text
        if name not in LOSSY:
            assert tokenizer.decode(expected) == text


@pytest.mark.parametrize("name", NOT_COMPARABLE)
def test_texts_come_back_whole_where_no_tokens_are_given(
    name: str, llama_cpp_models: Path, gguf_tokenizer: Callable[[Path], Tokenizer]
) -> None:
    tokenizer = gguf_tokenizer(vocabulary_path(llama_cpp_models, name))
    for text, _ in read_cases(vocabulary_path(llama_cpp_models, "llama-spm")):
        tokens = tokenizer.encode(text, add_special_tokens=False, parse_special=False)
        if name not in LOSSY:
            assert tokenizer.decode(tokens) == text
    assert tokenizer.encode("Hello", add_special_tokens=False)


@pytest.mark.parametrize("name", COMPARED + NOT_COMPARABLE)
def test_control_tokens_are_read_only_when_asked_for(
    name: str, llama_cpp_models: Path, gguf_tokenizer: Callable[[Path], Tokenizer]
) -> None:
    tokenizer = gguf_tokenizer(vocabulary_path(llama_cpp_models, name))
    for control in sorted(tokenizer.special_ids)[:40]:
        piece = tokenizer.id_to_piece(control)
        assert tokenizer.encode(piece, add_special_tokens=False) == [control]
        # A name made of one ordinary word is a token of its own in some vocabularies.
        literal = tokenizer.encode(piece, add_special_tokens=False, parse_special=False)
        assert control not in literal or name in LOSSY


@pytest.mark.parametrize("number", range(len(CONVERSATIONS)))
def test_templates_render_as_in_transformers(number: int, llama_cpp_models: Path) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    messages, tools = CONVERSATIONS[number]
    variables = {"bos_token": "<s>", "eos_token": "</s>"}
    paths = sorted((llama_cpp_models / "templates").glob("*.jinja"))
    assert len(paths) == 70
    for path in paths:
        source = path.read_text(encoding="utf-8")
        try:
            rendered, _ = render_jinja_template(
                [messages], tools, chat_template=source, add_generation_prompt=True, **variables
            )
        except Exception:
            with pytest.raises(TemplateError):
                ChatTemplate(source, variables).render(messages, tools=tools)
            continue
        assert ChatTemplate(source, variables).render(messages, tools=tools) == rendered[0], path.name
