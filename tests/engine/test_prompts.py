"""Every form of a prompt, and every wrong one refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagoda.core.errors import InvalidRequest, PagodaError
from pagoda.core.sampling_params import SamplingParams
from pagoda.engine.prompts import PromptReader
from pagoda.text import Tokenizer


@pytest.fixture(scope="module")
def reader(tiny_folder: Path) -> PromptReader:
    return PromptReader(Tokenizer.from_folder(tiny_folder), max_model_len=16)


def test_every_form_of_a_prompt(reader):
    text, token_ids = reader.read("a page")
    assert text == "a page" and token_ids
    assert reader.read(token_ids) == (None, token_ids)
    assert reader.read(tuple(token_ids)) == (None, token_ids)
    assert reader.read({"prompt": "a page"}) == (text, token_ids)
    assert reader.read({"prompt_token_ids": token_ids}) == (None, token_ids)
    assert reader.read({"prompt": "other", "prompt_token_ids": token_ids}) == ("other", token_ids)


def read_many(reader, prompts):
    return [reader.read(prompt) for prompt in reader.apart(prompts)]


def test_one_or_many(reader):
    one = reader.read("a")
    assert read_many(reader, "a") == [one]
    assert read_many(reader, {"prompt": "a"}) == [one]
    assert read_many(reader, ["a", [5, 6]]) == [one, (None, [5, 6])]
    assert read_many(reader, [5, 6]) == [(None, [5, 6])]
    assert read_many(reader, [[5, 6]]) == [(None, [5, 6])]
    assert read_many(reader, []) == []


@pytest.mark.parametrize(
    "bad",
    [
        None,
        5,
        1.5,
        b"text",
        {1, 2},
        pytest.param(object(), id="object"),
        [1, "a"],
        [1.0],
        [True],
        {},
        {"text": "a"},
        {1: 2},
        {"prompt": 5},
    ]
    + [{"prompt": [5]}, {"prompt_token_ids": 5}, {"prompt_token_ids": "abc"}, {"prompt_token_ids": None}, [[["a"]]]],
    ids=repr,
)
def test_anything_else_is_refused(reader, bad):
    with pytest.raises(InvalidRequest, match="^prompt"):
        read_many(reader, bad)
    with pytest.raises(InvalidRequest, match="^prompt"):
        read_many(reader, ["a", bad])


def test_a_text_that_cannot_fit_is_refused_before_it_is_read(reader):
    with pytest.raises(InvalidRequest, match="limit is 128"):
        reader.read("a" * 129)
    with pytest.raises(InvalidRequest, match="surrogate"):
        reader.read("\ud800")


def test_a_conversation_is_rendered_by_the_models_template(reader):
    text = reader.render_chat([{"role": "user", "content": "hi"}])
    assert text == "<|user|>hi\n<|assistant|>"
    assert reader.render_chat([{"role": "user", "content": "hi"}], add_generation_prompt=False) == "<|user|>hi\n"
    assert reader.read_chat(text)[1][0] == 2, "the name of a special token in a template is that token"


def test_a_model_without_a_template_says_so(tiny_folder):
    tokenizer = Tokenizer.from_folder(tiny_folder)
    tokenizer.chat_template = None
    with pytest.raises(PagodaError, match="template"):
        PromptReader(tokenizer, 16).render_chat([{"role": "user", "content": "hi"}])


def test_ids_count_up_unless_they_are_given(reader):
    sampling = SamplingParams()
    names = [reader.request([1], sampling).request_id for _ in range(2)]
    assert int(names[1]) == int(names[0]) + 1
    assert reader.request([1], sampling, "mine").request_id == "mine"
    assert reader.request([1], sampling, "mine", priority=3, cache_salt="s").priority == 3
