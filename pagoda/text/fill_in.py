"""A prompt with a hole: what stands before and behind it, framed so that the model writes what lies between.

The order is prefix, suffix, middle, in which Qwen, StarCoder, CodeLlama, DeepSeek and their like were trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pagoda.core.errors import InvalidRequest
from pagoda.text.special_tokens import FillInTokens
from pagoda.text.tokenizer import Tokenizer

NO_FILL_IN = "this model has no tokens for filling in before a suffix; leave it out"
_MARK = "\u263a"  # of its own in every vocabulary: it merges with nothing that follows


@dataclass(frozen=True, slots=True)
class FillInPrompt:
    """`before` is where the text before the hole stands in the token ids."""

    text: str | None
    token_ids: list[int]
    before: slice


class FillInFrame:
    """Frames for the tokens of one tokenizer; one that has none for it is refused by name.

    Names of special tokens in the texts are plain text: whoever completes a tokenizer's own source gets what is there.
    """

    def __init__(self, tokenizer: Tokenizer, max_bytes: int | None = None) -> None:
        self._tokenizer = tokenizer
        self._max_bytes = max_bytes
        self._prefix, self._suffix, self._middle = _needed(tokenizer.fill_in)

    def read(self, before: str | Sequence[int], behind: Sequence[int], add_special_tokens: bool = True) -> FillInPrompt:
        """`before` is a text or its token ids, `behind` what `encode_behind` made."""
        start = self._tokenizer.special.prefix_ids if add_special_tokens else ()
        if isinstance(before, str):
            text: str | None = before
            ids = self._tokenizer.encode(
                before, add_special_tokens=False, parse_special=False, max_bytes=self._max_bytes
            )
        else:
            text, ids = None, list(before)
            if start and tuple(ids[: len(start)]) == start:
                ids = ids[len(start) :]  # they begin the whole, not the part
        num_before = len(start) + 1
        token_ids = [*start, self._prefix, *ids, self._suffix, *behind, self._middle]
        return FillInPrompt(text, token_ids, slice(num_before, num_before + len(ids)))

    def encode_behind(self, text: str) -> list[int]:
        """The text behind the hole. It goes on where the hole ends, so no space is put before it as before a text."""
        plain = self._tokenizer.encode(text, add_special_tokens=False, parse_special=False, max_bytes=self._max_bytes)
        if not self._tokenizer.strips_leading_space:
            return plain
        mark = self._tokenizer.encode(_MARK, add_special_tokens=False, parse_special=False)
        marked = self._tokenizer.encode(_MARK + text, add_special_tokens=False, parse_special=False)
        return marked[len(mark) :] if marked[: len(mark)] == mark else plain


def _needed(tokens: FillInTokens) -> tuple[int, int, int]:
    if tokens.prefix is None or tokens.suffix is None or tokens.middle is None:
        raise InvalidRequest("suffix", NO_FILL_IN)
    return tokens.prefix, tokens.suffix, tokens.middle
