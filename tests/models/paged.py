"""A model run through pages as an executor would: several rows at once, pages in random order, freed pages poisoned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pagoda.kernels.base import KVPages, Operators, RaggedBatch
from pagoda.models import Model


class PagedRunner:
    """Rows grow by `step`. A page of a window group that no later token can see is given back and filled with NaN."""

    def __init__(
        self, model: Model, operators: Operators, page_size: int = 16, num_pages: int = 64, seed: int = 0
    ) -> None:
        self.model = model
        self.operators = operators
        self.page_size = page_size
        shape = (num_pages, page_size, model.config.num_kv_heads, model.config.head_dim)
        self.caches = [
            KVPages(np.full(shape, np.nan, np.float32), np.full(shape, np.nan, np.float32))
            for _ in range(model.config.num_layers)
        ]
        generator = np.random.default_rng(seed)
        self.groups = model.cache_groups()
        self.free = [generator.permutation(num_pages).tolist() for _ in self.groups]
        self.tables: dict[str, list[list[int]]] = {}
        self.lengths: dict[str, int] = {}

    def step(self, tokens: Mapping[str, Sequence[int]]) -> dict[str, np.ndarray]:
        """The logits at every new token of each row, [number of new tokens, V]."""
        for row, ids in tokens.items():
            self._grow(row, len(ids))
        batch = self._batch(tokens)
        every = np.arange(len(batch.token_ids), dtype=np.int32)
        hidden = self.model.forward(self.operators, batch, self.caches, every)
        logits = self.model.logits(self.operators, hidden)
        for row in tokens:
            self._give_back(row)
        starts = batch.row_starts
        return {row: logits[starts[i] : starts[i + 1]] for i, row in enumerate(tokens)}

    def greedy(self, prompt: Sequence[int], num_tokens: int, row: str = "row") -> list[int]:
        chosen: list[int] = []
        ids: Sequence[int] = prompt
        for _ in range(num_tokens):
            chosen.append(int(self.step({row: ids})[row][-1].argmax()))
            ids = chosen[-1:]
        return chosen

    def _grow(self, row: str, num_new: int) -> None:
        tables = self.tables.setdefault(row, [[] for _ in self.groups])
        self.lengths[row] = self.lengths.get(row, 0) + num_new
        num_pages = -(-self.lengths[row] // self.page_size)
        for group, table in enumerate(tables):
            while len(table) < num_pages:
                table.append(self.free[group].pop())

    def _give_back(self, row: str) -> None:
        for index, group in enumerate(self.groups):
            if not group.window:
                continue
            first_needed = max(0, self.lengths[row] - group.window + 1)
            table = self.tables[row][index]
            for number in range(first_needed // self.page_size):
                page, table[number] = table[number], -1
                if page >= 0:
                    self.free[index].insert(0, page)
                    for layer in group.layers:
                        self.caches[layer].keys[page] = np.nan
                        self.caches[layer].values[page] = np.nan

    def _batch(self, tokens: Mapping[str, Sequence[int]]) -> RaggedBatch:
        counts = [len(ids) for ids in tokens.values()]
        ends = [self.lengths[row] for row in tokens]
        positions = [np.arange(end - count, end) for count, end in zip(counts, ends, strict=True)]
        return RaggedBatch(
            token_ids=np.concatenate([np.asarray(ids, np.int32) for ids in tokens.values()]),
            positions=np.concatenate(positions).astype(np.int32),
            row_starts=np.cumsum([0, *counts], dtype=np.int32),
            context_lens=np.asarray(ends, np.int32),
            page_tables=tuple(self._page_table(list(tokens), group) for group in range(len(self.groups))),
        )

    def _page_table(self, rows: Sequence[str], group: int) -> np.ndarray:
        tables = [self.tables[row][group] for row in rows]
        padded = np.full((len(rows), max(map(len, tables))), -1, np.int32)
        for index, table in enumerate(tables):
            padded[index, : len(table)] = table
        return padded
