from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.core.errors import ModelFileError
from pagoda.models.config_reader import ConfigReader

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=200),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
) | st.integers(0, 200).map(np.arange)


@given(ANYTHING)
def test_whatever_stands_in_a_file_is_either_right_or_refused_in_one_line(value):
    reader = ConfigReader({"llama.key": value}, "GGUF metadata", "llama.")
    reads = [
        lambda: reader.integer("key", minimum=2, maximum=9),
        lambda: reader.number("key", minimum=0.5, maximum=7.5),
        lambda: reader.boolean("key"),
        lambda: reader.choice("key", ("a", "b")),
        lambda: reader.choices("key", ("a", "b"), 2),
        lambda: reader.require("key", 1.0),
        lambda: reader.refuse("key", "is not supported"),
        lambda: reader.section("key"),
    ]
    for read in reads:
        try:
            read()
        except ModelFileError as error:
            message = str(error)
            assert message.startswith("GGUF metadata: llama.key")
            assert "\n" not in message and len(message) < 250


@pytest.mark.parametrize("value", [True, 1.0, "1", [1], 0, 10])
def test_integer_refuses(value):
    with pytest.raises(ModelFileError, match="layers"):
        ConfigReader({"layers": value}, "config.json").integer("layers", maximum=9)


@pytest.mark.parametrize("value", [False, "1", float("nan"), float("inf"), 0.0, -1, 2.5, 10**400])
def test_number_refuses(value):
    with pytest.raises(ModelFileError, match="theta"):
        ConfigReader({"theta": value}, "config.json").number("theta", maximum=2.0)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**400, -(10**400)])
def test_number_is_finite_without_a_limit_too(value):
    with pytest.raises(ModelFileError, match="theta"):
        ConfigReader({"theta": value}, "config.json").number("theta")


def test_a_missing_key_has_its_default_or_is_named():
    reader = ConfigReader({"empty": None}, "config.json")
    assert reader.integer("empty", 3) == 3
    assert reader.boolean("absent", True) is True
    assert not reader.has("empty")
    for key in ("empty", "absent"):
        with pytest.raises(ModelFileError, match=f"config.json: {key} is missing"):
            reader.integer(key)


def test_require_names_the_only_value_that_is_supported():
    ConfigReader({}, "config.json").require("hidden_act", "silu")
    with pytest.raises(ModelFileError, match="hidden_act = 'relu' is not supported; only 'silu' is"):
        ConfigReader({"hidden_act": "relu"}, "config.json").require("hidden_act", "silu")


def test_section_names_its_place():
    section = ConfigReader({"rope": {"factor": "x"}}, "config.json").section("rope")
    with pytest.raises(ModelFileError, match="config.json: rope: factor = 'x' must be a number"):
        section.number("factor")


def test_defaults_stand_behind_what_is_present():
    reader = ConfigReader({"width": 4, "empty": None}, "config.json").with_defaults(width=8, empty=2, other=3)
    assert [reader.integer(key) for key in ("width", "empty", "other")] == [4, 2, 3]
    assert not reader.without("width").has("width")
