"""`suffix` on a model that has fill-in tokens and no chat template: what it is given, and how it answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tokenizers import Tokenizer
from transformers import PreTrainedModel

from tests.engine.conftest import SPECIAL, save_tokenizer
from tests.server.conftest import OPTIONS
from tests.server.running import RunningServer

NAMES = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|fim_pad|>")
PREFIX, SUFFIX, MIDDLE, PAD = range(len(SPECIAL), len(SPECIAL) + len(NAMES))
BODY: dict[str, Any] = {
    "prompt": "the engine",
    "suffix": " a step",
    "temperature": 0,
    "max_tokens": 6,
    "ignore_eos": True,
    "return_token_ids": True,
}


@pytest.fixture(scope="module")
def folder(tiny_reference: PreTrainedModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny-coder")
    tiny_reference.save_pretrained(folder)
    save_tokenizer(folder, NAMES, chat_template=None)
    return folder


@pytest.fixture(scope="module")
def library(folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


@pytest.fixture(scope="module")
def coder(folder: Path) -> Iterator[httpx.Client]:
    with RunningServer(folder, *OPTIONS) as running:
        running.wait_until_ready()
        with running.client() as client:
            yield client


def ask(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    response = client.post("/v1/completions", json=BODY | fields)
    assert response.status_code == 200, response.text
    return response.json()


def framed(library: Tokenizer, before: str, behind: str) -> list[int]:
    return [PREFIX, *library.encode(before).ids, SUFFIX, *library.encode(behind).ids, MIDDLE]


def test_the_model_sees_prefix_suffix_and_middle(coder: httpx.Client, library: Tokenizer):
    expected = framed(library, BODY["prompt"], BODY["suffix"])
    found = ask(coder)
    [choice] = found["choices"]
    assert choice["prompt_token_ids"] == expected and found["usage"]["prompt_tokens"] == len(expected)
    by_hand = ask(coder, prompt=expected, suffix=None)["choices"][0]
    assert choice["token_ids"] == by_hand["token_ids"] and choice["text"] == by_hand["text"] != ""
    assert ask(coder, suffix="")["choices"][0]["prompt_token_ids"] == library.encode(BODY["prompt"]).ids


def test_every_form_of_prompt_and_many_answers(coder: httpx.Client, library: Tokenizer):
    texts = ["the engine", "a page"]
    expected = [framed(library, text, BODY["suffix"]) for text in texts]
    for prompts in (texts, [library.encode(text).ids for text in texts]):
        choices = ask(coder, prompt=prompts, n=2, temperature=1.0, seed=4)["choices"]
        assert [choice["prompt_token_ids"] for choice in choices] == [one for one in expected for _ in range(2)]
        assert choices[0]["text"] != choices[1]["text"]


def test_a_stream_adds_up_to_the_whole(coder: httpx.Client):
    fields = {"n": 2, "temperature": 1.0, "seed": 9, "echo": True, "logprobs": 2}
    texts = ["", ""]
    with coder.stream("POST", "/v1/completions", json=BODY | fields | {"stream": True}) as response:
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    assert lines[-1] == "[DONE]"
    for line in lines[:-1]:
        for choice in json.loads(line)["choices"]:
            texts[choice["index"]] += choice["text"]
    assert texts == [choice["text"] for choice in ask(coder, **fields)["choices"]]


@pytest.mark.parametrize("as_ids", [False, True])
def test_echo_repeats_the_prompt_and_scores_its_tokens_alone(coder: httpx.Client, library: Tokenizer, as_ids: bool):
    own = library.encode(BODY["prompt"])
    [choice] = ask(coder, prompt=own.ids if as_ids else BODY["prompt"], echo=True, logprobs=1)["choices"]
    assert choice["text"].startswith(BODY["prompt"]) and BODY["suffix"] not in choice["text"]
    scores = choice["logprobs"]
    assert len(scores["tokens"]) == len(own.ids) + 6 and "".join(scores["tokens"]) == choice["text"]
    assert scores["token_logprobs"][0] < 0, "the token of the frame comes before the first"
    whole = framed(library, BODY["prompt"], BODY["suffix"])
    [by_hand] = ask(coder, prompt=whole, suffix=None, echo=True, logprobs=1)["choices"]
    expected = by_hand["logprobs"]["token_logprobs"]
    assert scores["token_logprobs"] == expected[1 : 1 + len(own.ids)] + expected[len(whole) :]


def test_names_of_special_tokens_in_the_texts_stay_text(coder: httpx.Client):
    text = "a<|fim_middle|></s>"
    found = ask(coder, prompt=text, suffix=text)["choices"][0]["prompt_token_ids"]
    assert [one for one in found if one < len(SPECIAL) + len(NAMES)] == [PREFIX, SUFFIX, MIDDLE]
    shown = coder.post("/detokenize", json={"tokens": found}).json()["prompt"]
    assert shown == f"<|fim_prefix|>{text}<|fim_suffix|>{text}<|fim_middle|>"


def test_a_token_that_leaves_the_middle_ends_the_answer(coder: httpx.Client):
    fields = {"logit_bias": {str(PAD): 100}, "ignore_eos": False}
    [choice] = ask(coder, **fields)["choices"]
    assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == ("", "stop", PAD)
    assert ask(coder, **fields, suffix=None)["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("fields", "param"),
    [({"suffix": "a" * 5000}, "suffix"), ({"prompt": "a" * 5000}, "prompt"), ({"suffix": 5}, "suffix")],
)
def test_what_is_too_long_is_refused_by_name(coder: httpx.Client, fields: dict[str, Any], param: str):
    response = coder.post("/v1/completions", json=BODY | fields)
    assert response.status_code == 400 and response.json()["error"]["param"] == param, response.text


def test_prompt_and_suffix_share_the_context(coder: httpx.Client, library: Tokenizer):
    text = "the engine plans a step " * 30
    response = coder.post("/v1/completions", json=BODY | {"prompt": text, "suffix": text})
    assert len(library.encode(text).ids) < 512 < 2 * len(library.encode(text).ids)
    error = response.json()["error"]
    assert (error["code"], error["param"]) == ("context_length_exceeded", "prompt")


def test_a_model_without_such_tokens_refuses_it_by_name(client: httpx.Client):
    response = client.post("/v1/completions", json=BODY)
    error = response.json()["error"]
    assert response.status_code == 400 and error["param"] == "suffix" and error["code"] == "unsupported_parameter"
