"""Vectors over HTTP: every form of input, both encodings, and what is refused."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from pagoda import LLM


def ask(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    response = client.post("/v1/embeddings", json=fields)
    assert response.status_code == 200, response.text
    return response.json()


def test_the_answer_has_openais_shape_and_the_engines_numbers(client: httpx.Client, tiny_folder: Path):
    texts = ["the engine plans a step", "a page holds sixteen tokens"]
    found = ask(client, input=texts, model="tiny")
    assert found["object"] == "list" and found["model"] == "tiny"
    assert [(one["object"], one["index"]) for one in found["data"]] == [("embedding", 0), ("embedding", 1)]
    with LLM(tiny_folder, num_threads=1) as llm:
        outputs = llm.embed(texts, use_tqdm=False)
    for one, output in zip(found["data"], outputs, strict=True):
        assert output.embedding is not None and one["embedding"] == output.embedding.tolist()
    count = sum(len(output.prompt_token_ids) for output in outputs)
    assert found["usage"]["prompt_tokens"] == found["usage"]["total_tokens"] == count


def test_every_form_of_input_and_both_encodings_say_the_same(client: httpx.Client):
    text = "who waits longest goes first"
    token_ids = client.post("/tokenize", json={"prompt": text}).json()["tokens"]
    expected = ask(client, input=text)["data"][0]["embedding"]
    for form in ([text], token_ids, [token_ids]):
        assert ask(client, input=form)["data"][0]["embedding"] == expected
    coded = ask(client, input=text, encoding_format="base64")["data"][0]["embedding"]
    assert np.frombuffer(base64.b64decode(coded), "<f4").tolist() == expected
    assert ask(client, input=text, pooling="mean")["data"][0]["embedding"] == expected
    last = ask(client, input=text, pooling="last")["data"][0]["embedding"]
    assert last != expected and abs(np.linalg.norm(last) - 1) < 1e-6


def test_a_thousand_inputs_in_one_call_come_back_in_their_order(client: httpx.Client):
    """As langchain sends them; many more than rows and queue take at once."""
    inputs = [[20 + number % 7, 21 + number % 11] for number in range(1000)]
    found = ask(client, input=inputs)
    assert [one["index"] for one in found["data"]] == list(range(1000))
    assert found["usage"]["prompt_tokens"] == 2000
    for number in (0, 76, 77, 500, 999):
        [alone] = ask(client, input=[inputs[number]])["data"]
        assert found["data"][number]["embedding"] == alone["embedding"]
    assert found["data"][0]["embedding"] == found["data"][77]["embedding"] != found["data"][1]["embedding"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "input"),
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": [[]]}, "input"),
        ({"input": [1, "a"]}, "input"),
        ({"input": [-1]}, "input[0]"),
        ({"input": [10**6]}, "input"),
        ({"input": "a", "dimensions": 8}, "dimensions"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
        ({"input": "a", "pooling": "max"}, "pooling"),
        ({"input": "a", "timeout": -1}, "timeout"),
        ({"input": "word " * 2000}, "input"),
        ({"input": ["a"] * 2049}, "input"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(client: httpx.Client, fields: dict[str, Any], param: str):
    response = client.post("/v1/embeddings", json=fields)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == param


def test_an_unknown_model_is_not_found(client: httpx.Client):
    assert client.post("/v1/embeddings", json={"input": "a", "model": "other"}).status_code == 404
