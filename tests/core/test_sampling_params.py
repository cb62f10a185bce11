from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.core.errors import InvalidRequest
from pagoda.core.sampling_params import SamplingParams

NOT_A_NUMBER: list[Any] = [
    True,
    False,
    b"1",
    {"a": 1},
    {1},
    object(),
    1j,
    Decimal("0.5"),
    np.bool_(True),
    np.array([0.5]),
    len,
    int,
    ...,
]
OUT_OF_ANY_RANGE: list[Any] = [
    math.nan,
    math.inf,
    -math.inf,
    1e300,
    -1e300,
    10**36,
    -(10**36),
    10**5000,
    np.float32("nan"),
    np.float64("inf"),
]
STRINGS: list[Any] = ["1", "", "nan", "true"]
LISTS: list[Any] = [[], [1], (1, 2), [None], [[1]]]
BAD_NUMBERS = [*NOT_A_NUMBER, *OUT_OF_ANY_RANGE, *STRINGS, *LISTS, {}]
BAD_FLAGS: list[Any] = [*BAD_NUMBERS[2:], None, 0, 1, 0.0]
BAD_TOKEN_IDS: list[Any] = [True, 1.0, "1", None, -1, 1 << 31, 10**18, math.nan, [1]]
BAD_TOKEN_LISTS: list[Any] = [
    *NOT_A_NUMBER,
    *OUT_OF_ANY_RANGE,
    *STRINGS,
    {},
    *([bad] for bad in BAD_TOKEN_IDS),
    *([1, bad] for bad in BAD_TOKEN_IDS),
    range(3),
    list(range((1 << 19) + 1)),
]

BAD: dict[str, list[Any]] = {
    "n": [*BAD_NUMBERS, None, 0, -1, 17, 10**18, 1.0],
    "temperature": [*BAD_NUMBERS, None, -1e-9, -1, 100.1],
    "top_p": [*BAD_NUMBERS, None, 0, 0.0, -0.1, 1.0001],
    "top_k": [*BAD_NUMBERS, None, -2, 1.5, 2.0, 10**18],
    "min_p": [*BAD_NUMBERS, None, -0.1, 1.1],
    "typical_p": [*BAD_NUMBERS, None, 0, -0.5, 1.5],
    "seed": [*BAD_NUMBERS, 1 << 63, -(1 << 63) - 1, 1.0],
    "max_tokens": [*BAD_NUMBERS, 0, -1, 1.0, 10**18],
    "min_tokens": [*BAD_NUMBERS, None, -1, 1.0, 17, 10**18],
    "logprobs": [*BAD_NUMBERS, -1, 21, 1.0, 10**18],
    "prompt_logprobs": [*BAD_NUMBERS, -1, 21, 1.0, 10**18],
    "presence_penalty": [*BAD_NUMBERS, None, -2.1, 2.1],
    "frequency_penalty": [*BAD_NUMBERS, None, -2.1, 2.1],
    "repetition_penalty": [*BAD_NUMBERS, None, 0, -1.0, 100.5],
    "ignore_eos": BAD_FLAGS,
    "skip_special_tokens": BAD_FLAGS,
    "include_stop_str_in_output": BAD_FLAGS,
    "detokenize": BAD_FLAGS,
    "stop_token_ids": [*BAD_TOKEN_LISTS, list(range(1025))],
    "banned_token_ids": BAD_TOKEN_LISTS,
    "allowed_token_ids": [*BAD_TOKEN_LISTS, []],
    "stop": [
        *NOT_A_NUMBER,
        *OUT_OF_ANY_RANGE,
        {},
        "",
        ["a"] * 17,
        ["a", ""],
        ["a", 1],
        ["a", None],
        ["a" * 257],
        ["é" * 129],
        "\ud800",
        [b"a"],
        [["a"]],
    ],
    "logit_bias": [
        *NOT_A_NUMBER,
        *OUT_OF_ANY_RANGE,
        *STRINGS,
        *LISTS,
        {True: 1.0},
        {-1: 1.0},
        {"1": 1.0},
        {1.0: 1.0},
        {1 << 31: 1.0},
        {10**18: 1.0},
        {1: math.nan},
        {1: math.inf},
        {1: -math.inf},
        {1: 101},
        {1: -101},
        {1: True},
        {1: None},
        {1: "1"},
        dict.fromkeys(range(1025), 1.0),
    ],
}


def test_every_field_has_its_bad_values() -> None:
    assert set(BAD) == set(SamplingParams.__struct_fields__)
    assert all(len(values) >= 30 for values in BAD.values())


@pytest.mark.parametrize("field", sorted(BAD))
def test_bad_value_is_refused_by_name(field: str) -> None:
    for value in BAD[field]:
        with pytest.raises(InvalidRequest) as refusal:
            SamplingParams(**{field: value})
        message = str(refusal.value)
        assert refusal.value.field == field, message
        assert message.startswith(field + ": ")
        assert "\n" not in message and len(message) < 300
        with pytest.raises(InvalidRequest):
            SamplingParams.from_dict({field: value})


@pytest.mark.parametrize(
    ("field", "low", "high"),
    [
        ("n", 1, 16),
        ("top_k", -1, 2**31 - 1),
        ("seed", -(2**63), 2**63 - 1),
        ("logprobs", 0, 20),
        ("prompt_logprobs", 0, 20),
        ("max_tokens", 1, 2**31 - 1),
        ("temperature", 0, 100),
        ("min_p", 0, 1),
        ("presence_penalty", -2, 2),
        ("frequency_penalty", -2, 2),
    ],
)
def test_limits_themselves_are_allowed(field: str, low: int, high: int) -> None:
    SamplingParams(**{field: low})
    SamplingParams(**{field: high})


def test_long_lists_at_their_limits() -> None:
    SamplingParams(stop=["é" * 128] * 16, stop_token_ids=list(range(1024)), logit_bias=dict.fromkeys(range(1024), 1))


def test_defaults_are_those_of_vllm() -> None:
    params = SamplingParams()
    assert (params.n, params.temperature, params.top_p, params.top_k, params.min_p) == (1, 1.0, 1.0, 0, 0.0)
    assert (params.max_tokens, params.min_tokens, params.seed, params.logprobs) == (16, 0, None, None)
    assert params.skip_special_tokens and params.detokenize and not params.include_stop_str_in_output


def test_forms_are_made_one() -> None:
    params = SamplingParams(
        stop="end",  # type: ignore[arg-type]
        stop_token_ids=[3, 1, 3],  # type: ignore[arg-type]
        banned_token_ids=None,  # type: ignore[arg-type]
        allowed_token_ids=None,
        top_k=-1,
        seed=-1,
        temperature=1,
        logit_bias={np.int64(4): np.float32(2.0)},  # type: ignore[dict-item]
    )
    assert params.stop == ("end",)
    assert params.stop_token_ids == (1, 3)
    assert params.banned_token_ids == ()
    assert params.top_k == 0 and params.seed is None
    assert type(params.temperature) is float
    assert params.logit_bias == {4: 2.0} and type(next(iter(params.logit_bias))) is int


def test_unknown_field_names_a_near_one() -> None:
    with pytest.raises(InvalidRequest, match="temprature: .*temperature"):
        SamplingParams.from_dict({"temprature": 0.5})
    with pytest.raises(InvalidRequest, match="the fields are n, temperature"):
        SamplingParams.from_dict({"zzzz": 0.5})
    with pytest.raises(InvalidRequest):
        SamplingParams.from_dict({"x" * 10**6: 1, 7: 2})  # type: ignore[dict-item]
    with pytest.raises(TypeError):
        SamplingParams(temprature=0.5)  # type: ignore[call-arg]


def test_contradictions_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="min_tokens: 9 is more than max_tokens=8"):
        SamplingParams(min_tokens=9, max_tokens=8)
    with pytest.raises(InvalidRequest, match="allowed_token_ids"):
        SamplingParams(allowed_token_ids=(1, 2), banned_token_ids=(1, 2, 3))
    with pytest.raises(InvalidRequest, match="stop"):
        SamplingParams(stop=("a",), detokenize=False)


@pytest.mark.parametrize("field", ["stop_token_ids", "allowed_token_ids", "banned_token_ids", "logit_bias"])
def test_ids_outside_the_vocabulary_are_refused(field: str) -> None:
    def params(token_id: int) -> SamplingParams:
        return SamplingParams(**{field: {token_id: 1.0} if field == "logit_bias" else [token_id]})

    params(99).validate_for(vocab_size=100, max_model_len=32)
    with pytest.raises(InvalidRequest, match=f"{field}: token id 100 .* 0 to 99"):
        params(100).validate_for(vocab_size=100, max_model_len=32)


def test_min_tokens_must_fit_the_context() -> None:
    params = SamplingParams(min_tokens=33, max_tokens=None)
    with pytest.raises(InvalidRequest, match="min_tokens"):
        params.validate_for(vocab_size=100, max_model_len=32)


good_params = st.builds(
    SamplingParams,
    n=st.integers(1, 16),
    temperature=st.floats(0, 100),
    top_p=st.floats(1e-6, 1),
    top_k=st.integers(-1, 1000),
    seed=st.none() | st.integers(-(2**63), 2**63 - 1),
    stop=st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8), max_size=16),
    stop_token_ids=st.lists(st.integers(0, 2**31 - 1), max_size=20),
    max_tokens=st.none() | st.integers(1, 2**31 - 1),
    logit_bias=st.none() | st.dictionaries(st.integers(0, 2**31 - 1), st.floats(-100, 100), max_size=20),
    allowed_token_ids=st.none() | st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=20),
    ignore_eos=st.booleans(),
)


@given(good_params)
def test_msgpack_round_trip(params: SamplingParams) -> None:
    data = msgspec.msgpack.encode(params)
    assert msgspec.msgpack.decode(data, type=SamplingParams) == params
    assert SamplingParams.from_dict(msgspec.structs.asdict(params)) == params


def test_bad_bytes_are_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="top_p"):
        msgspec.msgpack.decode(msgspec.msgpack.encode({"top_p": 7.0}), type=SamplingParams)


def test_is_greedy() -> None:
    assert SamplingParams(temperature=0).is_greedy
    assert SamplingParams(temperature=1e-6).is_greedy
    assert not SamplingParams(temperature=0.01).is_greedy
