from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.core.errors import InvalidRequest
from pagoda.text import StopStringMatcher

short_texts = st.text(alphabet="ab<", max_size=30)
stop_lists = st.lists(st.text(alphabet="ab<", min_size=1, max_size=4), max_size=4)


def cut(text: str, borders: list[int]) -> list[str]:
    places = [0, *sorted(border % (len(text) + 1) for border in borders), len(text)]
    return [text[start:end] for start, end in zip(places, places[1:], strict=False)]


def run(matcher: StopStringMatcher, pieces: list[str]) -> str:
    shown = ""
    for piece in pieces:
        step = matcher.push(piece)
        shown += step.text
        if step.match is not None:
            return shown
    return shown + matcher.flush()


def first_match(text: str, stops: list[str]) -> tuple[int, int] | None:
    """By definition: of all matches the one that ends first, and of those the longest."""
    found = [(start + len(stop), start) for stop in stops for start in range(len(text)) if text.startswith(stop, start)]
    if not found:
        return None
    end, start = min(found)
    return start, end


@given(short_texts, stop_lists, st.lists(st.integers(0, 100), max_size=8), st.booleans())
def test_the_answer_does_not_depend_on_how_the_text_is_cut(
    text: str, stops: list[str], borders: list[int], includes: bool
) -> None:
    matcher = StopStringMatcher(stops, includes)
    shown = run(matcher, cut(text, borders))
    expected = first_match(text, stops)
    if expected is None:
        assert matcher.match is None
        assert shown == text
        return
    start, end = expected
    assert matcher.match is not None
    assert (matcher.match.start, matcher.match.end, matcher.match.stop) == (start, end, text[start:end])
    assert shown == text[: end if includes else start]


@given(short_texts, stop_lists)
def test_only_the_beginning_of_a_stop_string_is_held_back(text: str, stops: list[str]) -> None:
    matcher = StopStringMatcher(stops)
    shown = ""
    for num_seen, character in enumerate(text, start=1):
        step = matcher.push(character)
        if step.match is not None:
            return
        shown += step.text
        assert text.startswith(shown)
        held = text[len(shown) : num_seen]
        assert not held or any(stop.startswith(held) and stop != held for stop in stops)


def test_after_a_match_nothing_more_is_shown() -> None:
    matcher = StopStringMatcher(["END"])
    assert matcher.push("so E").text == "so "
    step = matcher.push("ND and more")
    assert step.text == ""
    assert step.match is not None
    assert (step.match.start, step.match.end) == (3, 6)
    assert matcher.push("more").text == ""
    assert matcher.flush() == ""


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="stop"):
        StopStringMatcher(["a", ""])
