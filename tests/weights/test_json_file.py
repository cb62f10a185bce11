"""JSON of a model's folder: bounded in depth and memory, no key twice."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from pagoda.core.errors import ModelFileError, ModelNotFound
from pagoda.weights.json_file import MEMORY_ALLOWANCE, parse_json_object, read_json_object

FALSE_TEXTS = {
    "expected a JSON object": b"[]",
    "not valid JSON": b'{"a": }',
    "'utf-8' codec": b'{"a": "\xff"}',
    "nested too deeply": b'{"a":' + b"[" * 90_000 + b"]" * 90_000 + b"}",
    "the key 'b' stands twice": b'{"a": {"b": 1, "c": 2, "b": 3}}',
    "more memory": b'{"a":[' + b"{}," * 400_000 + b"{}]}",
    "Exceeds the limit": b'{"a":' + b"9" * 5000 + b"}",
}


@pytest.mark.parametrize("message", FALSE_TEXTS)
def test_a_false_text_is_refused(message: str) -> None:
    with pytest.raises(ModelFileError, match=message) as caught:
        parse_json_object(FALSE_TEXTS[message], "config.json", 1000)
    assert str(caught.value).startswith("config.json: ")


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":[' + b"[]," * 100_000 + b"[]]}",
        b'{"a":[' + b'{"a":1},' * 60_000 + b"{}]}",
        b"{" + b",".join(b'"%x":"%x"' % (number, number) for number in range(100_000)) + b"}",
        ('{"a":"' + "x" * 5_000_000 + '\U0001f600"}').encode(),
    ],
    ids=["lists", "objects", "strings", "wide text"],
)
def test_parsing_stays_in_its_memory(text: bytes) -> None:
    tracemalloc.start()
    try:
        parse_json_object(text, "header", len(text))
        assert tracemalloc.get_traced_memory()[1] <= len(text) + MEMORY_ALLOWANCE
    finally:
        tracemalloc.stop()


def test_a_file_is_read_and_a_missing_one_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"scale": Infinity, "name": "é"}', encoding="utf-8")
    assert read_json_object(tmp_path / "config.json") == {"scale": float("inf"), "name": "é"}
    with pytest.raises(ModelNotFound, match="other.json"):
        read_json_object(tmp_path / "other.json")
