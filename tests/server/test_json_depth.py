"""Nesting that is counted without building anything."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.server.errors import ApiError
from pagoda.server.json_depth import check_depth

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def depth_of(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max((depth_of(inner) for inner in value.values()), default=0)
    if isinstance(value, list):
        return 1 + max((depth_of(inner) for inner in value), default=0)
    return 0


@given(JSON, st.integers(1, 6))
def test_nesting_is_counted_as_a_parser_would(value: object, most: int):
    body = json.dumps(value).encode()
    if depth_of(value) <= most:
        check_depth(body, most)
    else:
        with pytest.raises(ApiError, match="deeper"):
            check_depth(body, most)


def test_brackets_in_texts_do_not_nest():
    check_depth(json.dumps({"a": '[{"\\' * 1000}).encode(), 2)
    with pytest.raises(ApiError):
        check_depth(b"[" * 1_000_000, 64)
