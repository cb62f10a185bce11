from __future__ import annotations

import msgspec
import pytest

from pagoda.core.errors import InvalidRequest
from pagoda.core.sampling_defaults import SamplingDefaults
from pagoda.core.sampling_params import SamplingParams


def test_what_is_not_recommended_stays_as_it_is():
    assert SamplingDefaults().known() == {} and str(SamplingDefaults()) == ""
    assert SamplingDefaults().params() == SamplingParams()
    assert SamplingDefaults(temperature=0.6, top_k=20).params() == SamplingParams(temperature=0.6, top_k=20)


def test_every_field_is_one_of_a_request():
    assert set(SamplingDefaults.__struct_fields__) <= set(SamplingParams.__struct_fields__)
    everything = SamplingDefaults(temperature=0.0, top_p=0.9, top_k=0, min_p=0.0, typical_p=0.8, repetition_penalty=1.1)
    assert set(everything.known()) == set(SamplingDefaults.__struct_fields__), "a zero is said, too"


def test_what_is_said_goes_before():
    defaults = SamplingDefaults(temperature=0.6, top_p=0.9)
    assert defaults.beneath({"temperature": 0.0, "n": 2}) == {"temperature": 0.0, "top_p": 0.9, "n": 2}


def test_in_words():
    assert str(SamplingDefaults(top_p=0.95, temperature=0.6000000238)) == "temperature 0.6, top_p 0.95"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -1),
        ("temperature", "hot"),
        ("top_p", 0),
        ("top_k", 2.5),
        ("top_k", True),
        ("min_p", float("nan")),
    ],
)
def test_a_bad_value_is_refused_by_name(field: str, value: object):
    with pytest.raises(InvalidRequest) as caught:
        SamplingDefaults(**{field: value})  # type: ignore[arg-type]
    assert caught.value.field == field


def test_it_travels():
    defaults = SamplingDefaults(temperature=0.0, top_k=20)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(defaults), type=SamplingDefaults) == defaults
