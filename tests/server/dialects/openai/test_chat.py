"""Chat completions as OpenAI's clients see them."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

MESSAGES = [{"role": "user", "content": "the engine plans"}]
BODY: dict[str, Any] = {"model": "tiny", "messages": MESSAGES, "temperature": 0, "max_tokens": 12, "ignore_eos": True}


def ask(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    response = client.post("/v1/chat/completions", json=BODY | fields)
    assert response.status_code == 200, response.text
    return response.json()


def stream(client: httpx.Client, **fields: Any) -> list[dict[str, Any]]:
    with client.stream("POST", "/v1/chat/completions", json=BODY | {"stream": True} | fields) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in response.iter_lines() if line]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def test_a_whole_answer(client: httpx.Client):
    answer = ask(client)
    assert answer["object"] == "chat.completion" and answer["id"].startswith("chatcmpl-") and answer["model"] == "tiny"
    [choice] = answer["choices"]
    assert choice["index"] == 0 and choice["finish_reason"] == "length" and choice["logprobs"] is None
    assert choice["message"]["role"] == "assistant" and choice["message"]["content"]
    usage = answer["usage"]
    assert usage["completion_tokens"] == 12 and usage["total_tokens"] == usage["prompt_tokens"] + 12
    assert usage["prompt_tokens_details"]["cached_tokens"] >= 0
    assert ask(client)["choices"][0]["message"]["content"] == choice["message"]["content"]


def test_a_stream_has_the_exact_sequence_of_chunks(client: httpx.Client):
    expected = ask(client)["choices"][0]["message"]["content"]
    chunks = stream(client)
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1 and all("usage" not in chunk for chunk in chunks)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant", "content": ""} and deltas[-1] == {}
    assert reasons == [None] * (len(chunks) - 1) + ["length"]
    assert "".join(delta.get("content", "") for delta in deltas) == expected


def test_usage_comes_last_when_asked_for(client: httpx.Client):
    *chunks, last = stream(client, stream_options={"include_usage": True})
    assert all(chunk["usage"] is None for chunk in chunks)
    assert last["choices"] == [] and last["usage"]["completion_tokens"] == 12
    assert "cached_tokens" in last["usage"]["prompt_tokens_details"]
    *chunks, last = stream(client, stream_options={"include_usage": True, "continuous_usage_stats": True})
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks if chunk.get("usage")]
    assert counts == sorted(counts) and counts[-1] == 12


def test_several_answers_are_told_apart_by_their_index(client: httpx.Client):
    fields = {"n": 3, "temperature": 1.0, "seed": 7}
    expected = [choice["message"]["content"] for choice in ask(client, **fields)["choices"]]
    texts = ["", "", ""]
    ends = 0
    for chunk in stream(client, **fields):
        [choice] = chunk["choices"]
        texts[choice["index"]] += choice["delta"].get("content", "")
        ends += choice["finish_reason"] is not None
    assert texts == expected and ends == 3 and len(set(expected)) > 1


def test_logprobs(client: httpx.Client):
    scores = ask(client, logprobs=True, top_logprobs=3)["choices"][0]["logprobs"]["content"]
    assert len(scores) == 12
    for score in scores:
        assert bytes(score["bytes"]).decode("utf-8", "replace") == score["token"]
        best = score["top_logprobs"]
        assert len(best) == 3 and best[0]["logprob"] == score["logprob"], "greedy takes the best"
        assert [one["logprob"] for one in best] == sorted((one["logprob"] for one in best), reverse=True)
    streamed = [
        score
        for chunk in stream(client, logprobs=True, top_logprobs=3)
        for score in (chunk["choices"][0]["logprobs"] or {"content": []})["content"]
    ]
    assert streamed == scores
    assert ask(client, logprobs=True)["choices"][0]["logprobs"]["content"][0]["top_logprobs"] == []


def test_stop_strings_end_an_answer_in_both_forms(client: httpx.Client):
    text = ask(client, max_tokens=60)["choices"][0]["message"]["content"]
    stop = text[len(text) // 2 :][:3]
    choice = ask(client, max_tokens=60, stop=stop)["choices"][0]
    assert choice["finish_reason"] == "stop" and choice["stop_reason"] == stop
    assert choice["message"]["content"] == text.split(stop)[0]
    chunks = stream(client, max_tokens=60, stop=[stop])
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == text.split(stop)[0]
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


def test_parts_of_text_are_one_text(client: httpx.Client):
    parts = [{"type": "text", "text": "the engine "}, {"type": "text", "text": "plans"}]
    whole = ask(client, messages=[{"role": "user", "content": parts}])
    assert whole["choices"][0]["message"] == ask(client)["choices"][0]["message"]


def test_fields_outside_the_schema_are_ignored(client: httpx.Client):
    assert ask(client, nonsense=1, store=True, metadata={"a": "b"}, service_tier="auto")["choices"]


def test_what_clients_send_by_default_asks_for_nothing(client: httpx.Client):
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    fields = {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True, "response_format": {"type": "text"}}
    assert ask(client, **fields)["choices"] and ask(client, tools=[tool], tool_choice="none")["choices"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"n": 17}, "n"),
        ({"n": 10**18}, "n"),
        ({"n": 0}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": -1}, "max_completion_tokens"),
        ({"seed": 2**63}, "seed"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"stop": "x" * 257}, "stop"),
        ({"logit_bias": {"a": 1}}, "logit_bias"),
        ({"logit_bias": {"99999": 1}}, "logit_bias"),
        ({"logprobs": True, "top_logprobs": 21}, "logprobs"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"best_of": 2}, "best_of"),
        ({"priority": 10**30}, "priority"),
        ({"stop_token_ids": [10**30]}, "stop_token_ids[0]"),
        ({"request_id": "a b"}, "request_id"),
        ({"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"add_generation_prompt": False}}, "chat_template_kwargs"),
        ({"structured_outputs": {"json": {}}}, "structured_outputs"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0]"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_honoured_is_refused_by_name(client: httpx.Client, fields: dict[str, Any], param: str):
    for is_stream in (False, True):
        response = client.post("/v1/chat/completions", json=BODY | fields | {"stream": is_stream})
        assert response.status_code == 400, response.text
        error = response.json()["error"]
        assert error["type"] == "invalid_request_error" and error["param"] == param, error


def test_stream_options_are_for_streams(client: httpx.Client):
    response = client.post("/v1/chat/completions", json=BODY | {"stream_options": {"include_usage": True}})
    assert response.status_code == 400 and response.json()["error"]["param"] == "stream_options"


def test_a_conversation_without_messages_is_refused_everywhere(client: httpx.Client):
    for fields in ({}, {"continue_final_message": True}):
        response = client.post("/tokenize", json={"messages": [], **fields})
        assert response.status_code == 400 and response.json()["error"]["param"] == "messages"


def test_an_answer_can_be_named(client: httpx.Client):
    assert ask(client, request_id="mine.1")["id"] == "chatcmpl-mine.1"
    assert {chunk["id"] for chunk in stream(client, request_id="mine.1")} == {"chatcmpl-mine.1"}


def test_token_ids_come_beside_the_text(client: httpx.Client):
    answer = ask(client, return_token_ids=True)
    [choice] = answer["choices"]
    assert len(answer["prompt_token_ids"]) == answer["usage"]["prompt_tokens"] and len(choice["token_ids"]) == 12
    text = client.post("/detokenize", json={"tokens": choice["token_ids"]}).json()["prompt"]
    assert text == choice["message"]["content"]
    first, *rest = stream(client, return_token_ids=True)
    assert first["prompt_token_ids"] == answer["prompt_token_ids"]
    assert not any("prompt_token_ids" in chunk for chunk in rest)
    assert sum((chunk["choices"][0].get("token_ids", []) for chunk in rest), []) == choice["token_ids"]
    assert "token_ids" not in ask(client)["choices"][0] and "prompt_token_ids" not in ask(client)


def test_the_last_message_can_be_continued(client: httpx.Client):
    begun = [*MESSAGES, {"role": "assistant", "content": "the answer is "}]

    def prompt_of(messages: list[dict[str, str]], **fields: Any) -> str:
        tokens = client.post("/tokenize", json={"messages": messages} | fields).json()["tokens"]
        return client.post("/detokenize", json={"tokens": tokens}).json()["prompt"]

    asked, followed = prompt_of(MESSAGES), prompt_of(begun, add_generation_prompt=False)
    continued = prompt_of(begun, continue_final_message=True)
    assert continued.endswith("the answer is ") and followed.startswith(continued.rstrip())
    assert len(asked) < len(continued) < len(followed)
    answer = ask(client, messages=begun, continue_final_message=True, return_token_ids=True)
    text = client.post("/detokenize", json={"tokens": answer["prompt_token_ids"]}).json()["prompt"]
    assert text == continued


def test_another_model_is_not_here(client: httpx.Client):
    response = client.post("/v1/chat/completions", json=BODY | {"model": "gpt-4"})
    assert response.status_code == 404 and response.json()["error"]["code"] == "model_not_found"


def test_a_prompt_that_is_too_long_says_so(client: httpx.Client):
    response = client.post("/v1/chat/completions", json=BODY | {"messages": [{"role": "user", "content": "a " * 600}]})
    assert response.status_code == 400 and response.json()["error"]["code"] == "context_length_exceeded"
