"""From the plans of a run to the shape of each step: how many tokens, over how much of the cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pagoda.core.cache import CacheGroup
from pagoda.core.plan import StepPlan

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StepShape:
    num_tokens: int
    num_logits: int
    """Rows of logits: one for each token that is drawn."""
    num_cached: tuple[int, ...]
    """By cache group: tokens whose keys and values are read or written. Those that rows share count once."""
    num_pairs: tuple[int, ...]
    """By cache group: queries times the keys that each of them sees."""
    is_decode: bool
    """Every row computes the token it drew last."""

    @classmethod
    def of_decoding(cls, groups: Sequence[CacheGroup], num_rows: int, context: int) -> StepShape:
        """A step in which every row has so many tokens, the new one among them, and shares none."""
        seen = tuple(num_rows * (context - group.first_seen(context - 1)) for group in groups)
        return cls(num_rows, num_rows, seen, seen, is_decode=True)


class ShapeReader:
    """Follows the rows from plan to plan; the first must find all rows empty."""

    def __init__(self, groups: Sequence[CacheGroup], page_size: int, num_rows: int, max_tokens: int) -> None:
        self._groups = groups
        self._page_size = page_size
        self._num_computed: Counts = np.zeros(num_rows, np.int64)
        self._tables: list[Counts] = [np.full((num_rows, -(-max_tokens // page_size)), -1, np.int64) for _ in groups]
        self._may_share = False  # until a row begins with pages that were there before it

    def read(self, plan: StepPlan) -> StepShape:
        self._take_orders(plan)
        before = self._num_computed[plan.rows]
        after = before + plan.num_tokens
        self._num_computed[plan.rows] = after
        num_cached, num_pairs = [], []
        for group, table in zip(self._groups, self._tables, strict=True):
            first = np.maximum(0, before - group.window + 1) if group.window else np.zeros_like(before)
            if self._may_share:
                num_cached.append(self._distinct(table[plan.rows], first, after))
            else:
                num_cached.append(int((after - first).sum()))
            num_pairs.append(int((_seen_up_to(after, group.window) - _seen_up_to(before, group.window)).sum()))
        return StepShape(
            num_tokens=int(plan.num_tokens.sum()),
            num_logits=int(plan.draws.sum()),
            num_cached=tuple(num_cached),
            num_pairs=tuple(num_pairs),
            is_decode=bool((plan.num_tokens == 1).all() and plan.draws.all()),
        )

    def _take_orders(self, plan: StepPlan) -> None:
        for start in plan.started:
            self._num_computed[start.row] = start.num_computed
            self._may_share |= start.num_computed > 0
            for table, pages in zip(self._tables, start.page_tables, strict=True):
                table[start.row, : len(pages)] = pages
        for update in plan.table_updates:
            self._tables[update.group][update.row, update.start : update.start + len(update.pages)] = update.pages

    def _distinct(self, tables: Counts, first: Counts, after: Counts) -> int:
        """Tokens from `first` up to `after` of each row; what lies in the same place of the same page is the same."""
        size = self._page_size
        starts = size * np.arange(-(-int(after.max()) // size))
        low = np.maximum(first[:, None], starts) - starts
        high = np.minimum(after[:, None] - starts, size)
        is_seen = high > low
        pages, owner = np.unique(tables[:, : len(starts)][is_seen], return_inverse=True)
        lowest, highest = np.full(len(pages), size), np.zeros(len(pages), np.int64)
        np.minimum.at(lowest, owner, low[is_seen])
        np.maximum.at(highest, owner, high[is_seen])
        return int((highest - lowest).sum())


def _seen_up_to(num_tokens: Counts, window: int) -> Counts:
    """The keys that the first so many tokens of a row see, all together: the i-th sees i, or the window."""
    if not window:
        return num_tokens * (num_tokens + 1) // 2
    growing = np.minimum(num_tokens, window)
    return growing * (growing + 1) // 2 + (num_tokens - growing) * window
