"""Stop strings in a growing text: found across the borders of its pieces, never shown by half."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pagoda.core.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class StopMatch:
    """`start` and `end` count characters from the beginning of the whole text."""

    stop: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class StopStep:
    """`text` may be shown now. After a match it is the last text there is."""

    text: str
    match: StopMatch | None = None


class _Progress:
    """How much of one stop string the text now ends with (Knuth, Morris and Pratt)."""

    __slots__ = ("_fallback", "num_matched", "stop")

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.num_matched = 0
        self._fallback = _border_lengths(stop)

    def advance(self, character: str) -> bool:
        matched = self.num_matched
        while matched and self.stop[matched] != character:
            matched = self._fallback[matched - 1]
        if self.stop[matched] == character:
            matched += 1
        self.num_matched = matched
        return matched == len(self.stop)


class StopStringMatcher:
    """Holds back what may be the beginning of a stop string, and lets the rest pass.

    The match that ends first wins, and of those that end together the longest: so the answer is the same however the
    text was cut into pieces.
    """

    def __init__(self, stops: Sequence[str], include_stop_str_in_output: bool = False) -> None:
        if not all(stops):
            raise InvalidRequest("stop", "an empty string would stop at once; remove it")
        self._progress = [_Progress(stop) for stop in sorted(set(stops), key=len, reverse=True)]
        self._includes_stop = include_stop_str_in_output
        self._held = ""
        self._num_shown = 0
        self.match: StopMatch | None = None

    def push(self, text: str) -> StopStep:
        if self.match is not None:
            return StopStep("", self.match)
        if not self._progress:
            return StopStep(text)
        pending = self._held + text
        for position in range(len(self._held), len(pending)):
            stop = self._advance(pending[position])
            if stop is not None:
                return self._finish(pending, stop, position + 1)
        num_held = max(progress.num_matched for progress in self._progress)
        border = len(pending) - num_held
        self._held = pending[border:]
        self._num_shown += border
        return StopStep(pending[:border])

    def flush(self) -> str:
        """The text still held back, at the end of an answer that no stop string ended."""
        held, self._held = self._held, ""
        self._num_shown += len(held)
        return held

    def _advance(self, character: str) -> str | None:
        # Every string advances, even once one has matched: the first in the list is the longest.
        matched = [progress.stop for progress in self._progress if progress.advance(character)]
        return matched[0] if matched else None

    def _finish(self, pending: str, stop: str, end: int) -> StopStep:
        start = end - len(stop)
        self.match = StopMatch(stop, self._num_shown + start, self._num_shown + end)
        self._held = ""
        return StopStep(pending[: end if self._includes_stop else start], self.match)


def _border_lengths(pattern: str) -> list[int]:
    """For each prefix, the length of the longest shorter prefix that it also ends with."""
    lengths = [0] * len(pattern)
    for index in range(1, len(pattern)):
        length = lengths[index - 1]
        while length and pattern[index] != pattern[length]:
            length = lengths[length - 1]
        lengths[index] = length + (pattern[index] == pattern[length])
    return lengths
