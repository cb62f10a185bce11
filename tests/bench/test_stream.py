from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.bench.http import BadAnswer
from pagoda.bench.stream import Stream, error_message


def event(content: object) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"


def text(words: str, finish_reason: str | None = None) -> bytes:
    return event({"choices": [{"index": 0, "text": words, "finish_reason": finish_reason}]})


def delta(content: dict[str, object], finish_reason: str | None = None) -> bytes:
    return event({"choices": [{"index": 0, "delta": content, "finish_reason": finish_reason}]})


def read(data: bytes) -> Stream:
    stream = Stream(keeps_text=True)
    stream.take(data, 1.0)
    stream.end()
    return stream


def test_completions_count_each_piece() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}
    stream = read(
        text("a") + text("") + text("b", "length") + event({"choices": [], "usage": usage}) + b"data: [DONE]\n\n"
    )
    assert len(stream.times) == 3, "a token whose text is not certain yet is a token"
    assert stream.text == "ab" and stream.is_done
    assert stream.usage is not None and stream.usage.completion_tokens == 3
    assert stream.usage.prompt_tokens_details is not None and stream.usage.prompt_tokens_details.cached_tokens == 4


def test_the_end_of_a_completion_is_no_token() -> None:
    assert len(read(text("a") + text("", "stop")).times) == 1


def test_chat_counts_what_has_content() -> None:
    stream = read(
        delta({"role": "assistant", "content": ""})
        + delta({"reasoning_content": "hm"})
        + delta({"content": "hi"})
        + delta({}, "stop")
    )
    assert len(stream.times) == 2 and stream.text == "hmhi"


@given(st.integers(1, 30))
def test_events_come_through_however_they_are_torn(step: int) -> None:
    data = b": a comment\n\n" + text("one") + text("two é") + b"data: [DONE]\r\n\r\n"
    stream = Stream(keeps_text=True)
    for start in range(0, len(data), step):
        stream.take(data[start : start + step], float(start))
    assert stream.text == "onetwo é" and stream.is_done and len(stream.times) == 2


def test_times_are_those_of_the_pieces() -> None:
    stream = Stream()
    stream.take(text("a") + text("b"), 1.5)
    stream.take(text("c"), 2.5)
    assert list(stream.times) == [1.5, 1.5, 2.5]


def test_an_error_in_the_stream() -> None:
    assert read(text("a") + event({"error": {"message": "it broke", "code": 500}})).error == "it broke"


def test_an_answer_that_is_no_stream_is_kept() -> None:
    stream = read(b'{"error": {"message": "no room"}}')
    assert error_message(bytes(stream.body)) == "no room"


@pytest.mark.parametrize(
    "data", [b"data: {\n\n", b"data: []\n\n", b'data: {"choices": 3}\n\n', b'data: {"choices": [{"text": "\xff"}]}\n\n']
)
def test_damage_is_named(data: bytes) -> None:
    with pytest.raises(BadAnswer):
        read(data)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'{"message": "x"}', "x"),
        (b'{"error": "y"}', "y"),
        (b"<html>", "<html>"),
        (b'["z"]', "['z']"),
        (b"", ""),
        (b'"\xff"', '"\ufffd"'),
    ],
)
def test_words_of_an_error(data: bytes, words: str) -> None:
    assert error_message(data) == words
