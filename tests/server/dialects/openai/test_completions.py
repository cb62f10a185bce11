"""Text completions: every form of prompt, echo and scores."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.server.dialects.openai.completions import TextAnswer
from pagoda.server.dialects.openai.schema import CompletionRequest
from pagoda.server.generation import News

BODY: dict[str, Any] = {"prompt": "the engine plans", "temperature": 0, "max_tokens": 8, "ignore_eos": True}


def ask(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    response = client.post("/v1/completions", json=BODY | fields)
    assert response.status_code == 200, response.text
    return response.json()


def stream(client: httpx.Client, **fields: Any) -> list[dict[str, Any]]:
    with client.stream("POST", "/v1/completions", json=BODY | {"stream": True} | fields) as response:
        lines = [line for line in response.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def test_every_form_of_prompt(client: httpx.Client):
    one = ask(client)
    assert one["object"] == "text_completion" and one["id"].startswith("cmpl-")
    text = one["choices"][0]["text"]
    token_ids = client.post("/tokenize", json={"prompt": BODY["prompt"]}).json()["tokens"]
    other = ask(client, prompt="a page holds")["choices"][0]["text"]
    assert ask(client, prompt=token_ids)["choices"][0]["text"] == text
    for prompt in ([BODY["prompt"], "a page holds"], [token_ids, [*token_ids][:0] or token_ids]):
        found = ask(client, prompt=prompt)
        assert [choice["index"] for choice in found["choices"]] == [0, 1]
    assert [choice["text"] for choice in ask(client, prompt=[BODY["prompt"], "a page holds"])["choices"]] == [
        text,
        other,
    ]


def test_answers_to_many_prompts_are_numbered_prompt_by_prompt(client: httpx.Client):
    fields = {"prompt": ["the engine", "a page"], "n": 2, "temperature": 1.0, "seed": 3}
    whole = {choice["index"]: choice["text"] for choice in ask(client, **fields)["choices"]}
    assert sorted(whole) == [0, 1, 2, 3]
    texts = dict.fromkeys(whole, "")
    for chunk in stream(client, **fields):
        for choice in chunk["choices"]:
            texts[choice["index"]] += choice["text"]
    assert texts == whole


def test_echo_and_logprobs(client: httpx.Client):
    found = ask(client, echo=True, logprobs=2)
    choice = found["choices"][0]
    assert choice["text"].startswith(BODY["prompt"])
    scores = choice["logprobs"]
    lengths = {len(scores[name]) for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")}
    assert lengths == {found["usage"]["total_tokens"]}
    assert scores["token_logprobs"][0] is None and scores["top_logprobs"][0] is None
    assert all(score <= 0 for score in scores["token_logprobs"][1:])
    assert "".join(scores["tokens"]) == choice["text"]
    for token, offset in zip(scores["tokens"], scores["text_offset"], strict=True):
        assert choice["text"][offset : offset + len(token)] == token


def test_a_prompt_is_scored_without_an_answer(client: httpx.Client):
    found = ask(client, echo=True, max_tokens=0, logprobs=1)
    choice = found["choices"][0]
    assert choice["text"] == BODY["prompt"] and found["usage"]["completion_tokens"] == 0
    whole = ask(client, echo=True, logprobs=1)["choices"][0]["logprobs"]["token_logprobs"]
    scores = choice["logprobs"]["token_logprobs"]
    assert scores == whole[: len(scores)] and len(scores) == found["usage"]["prompt_tokens"]
    assert all(math.isfinite(score) for score in scores[1:])


def test_a_stream_ends_with_its_reason_and_the_usage_if_asked_for(client: httpx.Client):
    chunks = stream(client, stream_options={"include_usage": True})
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"]["completion_tokens"] == 8
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]][-1] == "length"
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks[:-1]) == ask(client)["choices"][0]["text"]


@given(st.text(), st.sampled_from([None, "stop", "length"]), st.none() | st.integers(0, 9) | st.text(), st.booleans())
def test_a_piece_of_a_stream_has_the_same_bytes_by_template(text: str, reason: Any, stop: Any, echo: bool):
    service: Any = SimpleNamespace(tokenizer=None, model_name="m", fingerprint="f")
    output: Any = SimpleNamespace(outputs=[None, None], prompt="p", prompt_token_ids=[1], prompt_logprobs=None)
    answer = TextAnswer(service, CompletionRequest(prompt=["p", "p"], echo=echo), [slice(None)] * 2)
    answer.news(1, output, 1, News("first", [2], [], None, None))
    piece = {"index": 3, "text": text, "logprobs": None, "finish_reason": reason, "stop_reason": stop}
    assert answer.news(1, output, 1, News(text, [3], [], reason, stop)) == [msgspec.json.encode(piece)]


@pytest.mark.parametrize("fields", [{}, {"max_tokens": 0}, {"n": 2, "prompt": ["the engine", "a page"]}])
def test_the_pieces_of_a_stream_add_up_to_the_whole(client: httpx.Client, fields: dict[str, Any]):
    fields = {"echo": True, "logprobs": 2, "temperature": 0.7, "seed": 5} | fields
    found: dict[int, dict[str, Any]] = {}
    for chunk in stream(client, **fields):
        for choice in chunk["choices"]:
            own = found.setdefault(choice["index"], {"text": "", "logprobs": {}})
            own["text"] += choice["text"]
            own |= {name: choice[name] for name in ("index", "finish_reason", "stop_reason")}
            for name, values in choice["logprobs"].items():
                own["logprobs"].setdefault(name, []).extend(values)
    assert [found[index] for index in sorted(found)] == ask(client, **fields)["choices"]


def test_the_usage_so_far_in_every_chunk(client: httpx.Client):
    options = {"include_usage": True, "continuous_usage_stats": True}
    counts = [chunk["usage"]["completion_tokens"] for chunk in stream(client, stream_options=options)]
    assert counts == sorted(counts) and counts[0] >= 1 and counts[-1] == 8


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": []}, "prompt"),
        ({"prompt": ["a", 1]}, "prompt"),
        ({"prompt": [99999]}, "prompt"),
        ({"prompt": [-1]}, "prompt[0]"),
        ({"prompt": ["a"] * 257}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"suffix": "x"}, "suffix"),
        ({"logprobs": 21}, "logprobs"),
        ({"max_tokens": -1}, "max_tokens"),
    ],
)
def test_bad_fields_are_refused_by_name(client: httpx.Client, fields: dict[str, Any], param: str):
    response = client.post("/v1/completions", json=BODY | fields)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == param


def test_token_ids_come_beside_the_text(client: httpx.Client):
    fields = {"prompt": [[3, 4, 5], [6, 7]], "return_token_ids": True, "request_id": "mine"}
    answer = ask(client, **fields)
    assert answer["id"] == "cmpl-mine"
    assert [choice["prompt_token_ids"] for choice in answer["choices"]] == fields["prompt"]
    for choice in answer["choices"]:
        text = client.post("/detokenize", json={"tokens": [*choice["prompt_token_ids"], *choice["token_ids"]]}).json()
        assert text["prompt"].endswith(choice["text"])
    assert sum(len(choice["token_ids"]) for choice in answer["choices"]) == answer["usage"]["completion_tokens"]
