"""The table of limits, and nesting that is counted without building anything."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.core.errors import InvalidRequest
from pagoda.server.errors import ApiError
from pagoda.server.limits import Limits, check_depth

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


@pytest.mark.parametrize("field", Limits.__struct_fields__)
def test_a_limit_is_a_whole_number_of_at_least_one(field: str):
    for bad in (0, -1, True, 1.5, "1"):
        with pytest.raises(InvalidRequest, match=field):
            Limits(**{field: bad})
    assert getattr(Limits(**{field: 1}), field) == 1


def test_what_the_engine_limits_can_only_be_made_stricter():
    assert Limits(max_n=4).max_n == 4
    with pytest.raises(InvalidRequest, match="max_n.*at most 16"):
        Limits(max_n=17)
