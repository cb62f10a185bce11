"""The distinct tokens a sequence has seen, with how often each stands in its output: what penalties need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from pagoda.kernels.sampling import IntArray


class TokenHistory:
    """Invariant: `token_ids` holds no id twice, and `output_counts` is 0 for a token of the prompt alone."""

    def __init__(self, prompt_token_ids: Sequence[int], output_token_ids: Sequence[int]) -> None:
        counts = dict.fromkeys(map(int, prompt_token_ids), 0)
        counts.update(Counter(map(int, output_token_ids)))
        self._places = {token_id: place for place, token_id in enumerate(counts)}
        self._size = len(counts)
        self._token_ids = np.fromiter(counts.keys(), dtype=np.int32, count=self._size)
        self._output_counts = np.fromiter(counts.values(), dtype=np.int32, count=self._size)

    @property
    def token_ids(self) -> IntArray:
        return self._token_ids[: self._size]

    @property
    def output_counts(self) -> IntArray:
        return self._output_counts[: self._size]

    def observe(self, token_id: int) -> None:
        place = self._places.setdefault(token_id, self._size)
        if place == self._size:
            self._append(token_id)
        self._output_counts[place] += 1

    def _append(self, token_id: int) -> None:
        if self._size == len(self._token_ids):
            room = np.zeros(max(64, self._size), dtype=np.int32)
            self._token_ids = np.concatenate([self._token_ids, room])
            self._output_counts = np.concatenate([self._output_counts, room])
        self._token_ids[self._size] = token_id
        self._size += 1
