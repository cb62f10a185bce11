"""SentencePiece BPE with scores: the neighbours whose union scores best are joined, leftmost first among equals.

The `tokenizers` library wants ranked pairs instead. They can be worked out from the scores, but that takes ten times as
long as this module needs to start, and equal scores come out differently: docs/design/tokenizers.md has the numbers.
Words are remembered, which makes up for the language this is written in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import heapify, heappop, heappush
from typing import TypeAlias

import tokenizers
from tokenizers import AddedToken, models

from pagoda.text.encoders import library_faults
from pagoda.text.token_table import WORD_BORDER

_Candidate: TypeAlias = tuple[float, int, int, str]  # cost, left, right, union

_NUM_REMEMBERED_WORDS = 1 << 16
_MAX_REMEMBERED_LENGTH = 64


@dataclass(frozen=True, slots=True)
class SentencePieceModel:
    """`costs` holds every piece that a merge may form, with its score negated so that the smallest is the best."""

    ids: dict[str, int]
    costs: dict[str, float]
    byte_ids: tuple[int, ...] | None
    unknown_id: int | None
    adds_space_prefix: bool


class SpecialTokenSplitter:
    """Finds added tokens in a text with the library's automaton: the leftmost first, of those the longest."""

    def __init__(self, added: Sequence[tuple[int, AddedToken]]) -> None:
        self._ids = [token_id for token_id, _ in added]
        # Every stretch between added tokens is one unknown word to this model, so its offsets are the stretch.
        self._model = models.WordLevel({"": 0}, unk_token="")
        self._parsing = self._build(added)
        self._literal = self._build(added)
        self._literal.encode_special_tokens = True

    def _build(self, added: Sequence[tuple[int, AddedToken]]) -> tokenizers.Tokenizer:
        tokenizer = tokenizers.Tokenizer(self._model)
        tokenizer.add_tokens([token for _, token in added])
        return tokenizer

    def split(self, text: str, parse_special: bool) -> Iterator[int | str]:
        """The parts of `text` in order: an id for an added token, a string for what lies between."""
        with library_faults("tokenizer"):
            encoding = (self._parsing if parse_special else self._literal).encode(text, add_special_tokens=False)
        for index, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            yield self._ids[index - 1] if index else text[start:end]


class SentencePieceEncoder:
    def __init__(self, model: SentencePieceModel, splitter: SpecialTokenSplitter) -> None:
        self._model = model
        self._splitter = splitter
        self._word_pattern = _independent_words(model.costs)
        self._remembered = lru_cache(maxsize=_NUM_REMEMBERED_WORDS)(self._encode_word)

    def encode(self, text: str, parse_special: bool) -> list[int]:
        output: list[int] = []
        for part in self._splitter.split(text, parse_special):
            if isinstance(part, int):
                output.append(part)
            else:
                self._encode_stretch(part, output)
        return output

    def _encode_stretch(self, stretch: str, output: list[int]) -> None:
        if self._model.adds_space_prefix:
            stretch = " " + stretch
        for word in self._word_pattern.findall(stretch.replace(" ", WORD_BORDER)):
            encode = self._remembered if len(word) <= _MAX_REMEMBERED_LENGTH else self._encode_word
            output.extend(encode(word))

    def _encode_word(self, word: str) -> tuple[int, ...]:
        ids: list[int] = []
        for symbol in _merge(word, self._model.costs):
            if symbol in self._model.costs:
                ids.append(self._model.ids[symbol])
            else:
                ids.extend(self._unknown_ids(symbol))
        return tuple(ids)

    def _unknown_ids(self, symbol: str) -> list[int]:
        if self._model.byte_ids is not None:
            return [self._model.byte_ids[byte] for byte in symbol.encode("utf-8")]
        return [] if self._model.unknown_id is None else [self._model.unknown_id]


def _independent_words(costs: dict[str, float]) -> re.Pattern[str]:
    """A pattern for words that no merge can reach across.

    A merge only ever forms a piece, so a text may be cut between a character and a word border wherever no piece holds
    the two side by side.
    """
    before_border = re.compile(f"([^{WORD_BORDER}]){WORD_BORDER}", re.DOTALL)
    joined = {character for piece in _pieces_with_inner_border(costs) for character in before_border.findall(piece)}
    keeps_on = "".join(re.escape(character) for character in sorted(joined))
    inner = f"[^{WORD_BORDER}]"
    if not keeps_on:
        return re.compile(f"{WORD_BORDER}*{inner}+|{WORD_BORDER}+")
    across = f"(?:{inner}|(?<=[{keeps_on}]){WORD_BORDER}+)"
    return re.compile(f"{WORD_BORDER}*{inner}{across}*|{WORD_BORDER}+")


def _pieces_with_inner_border(costs: dict[str, float]) -> list[str]:
    return [piece for piece in costs if WORD_BORDER in piece.lstrip(WORD_BORDER)]


def _merge(word: str, costs: dict[str, float]) -> list[str]:
    """Join neighbours, best first, until no two neighbours form a piece."""
    symbols = list(word)
    num_symbols = len(symbols)
    following = list(range(1, num_symbols + 1))
    preceding = list(range(-1, num_symbols - 1))
    queue: list[_Candidate] = []
    for left in range(num_symbols - 1):
        joined = symbols[left] + symbols[left + 1]
        if joined in costs:
            queue.append((costs[joined], left, left + 1, joined))
    heapify(queue)
    while queue:
        _, left, right, joined = heappop(queue)
        # A symbol that was merged away is empty, and one that has grown no longer gives the same union.
        if not symbols[left] or not symbols[right] or len(symbols[left]) + len(symbols[right]) != len(joined):
            continue
        symbols[left], symbols[right] = joined, ""
        after = following[left] = following[right]
        if after < num_symbols:
            preceding[after] = left
            _offer(queue, costs, left, after, joined + symbols[after])
        before = preceding[left]
        if before >= 0:
            _offer(queue, costs, before, left, symbols[before] + joined)
    return [symbol for symbol in symbols if symbol]


def _offer(
    queue: list[tuple[float, int, int, str]], costs: dict[str, float], left: int, right: int, joined: str
) -> None:
    cost = costs.get(joined)
    if cost is not None:
        heappush(queue, (cost, left, right, joined))
