"""Rows of random keys and values, laid out once in pages and once flat for an oracle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pagoda.kernels.base import KVPages, RaggedBatch


@dataclass(frozen=True)
class Row:
    num_cached: int
    num_new: int

    @property
    def context_len(self) -> int:
        return self.num_cached + self.num_new


@dataclass(frozen=True, eq=False)
class RaggedCase:
    """keys[r] and values[r] are [context_len, K, E]; the pages hold them, and NaN wherever nobody may look."""

    batch: RaggedBatch
    pages: KVPages
    keys: list[np.ndarray]
    values: list[np.ndarray]


def empty_pages(num_pages: int, page_size: int, num_kv_heads: int, head_dim: int) -> KVPages:
    shape = (num_pages, page_size, num_kv_heads, head_dim)
    return KVPages(np.full(shape, np.nan, np.float32), np.full(shape, np.nan, np.float32))


def make_batch(rows: Sequence[Row], page_size: int, generator: np.random.Generator) -> tuple[RaggedBatch, int]:
    """A batch of two cache groups, of which the second is real, and the number of pages its table needs."""
    counts = [-(-row.context_len // page_size) for row in rows]
    num_pages = sum(counts) + 2
    order = generator.permutation(num_pages).astype(np.int32)
    table = np.full((len(rows), max(counts)), -1, np.int32)
    used = 0
    for index, count in enumerate(counts):
        table[index, :count] = order[used : used + count]
        used += count
    num_tokens = sum(row.num_new for row in rows)
    positions = [np.arange(row.num_cached, row.context_len) for row in rows]
    batch = RaggedBatch(
        token_ids=np.zeros(num_tokens, np.int32),
        positions=np.concatenate(positions).astype(np.int32),
        row_starts=np.cumsum([0, *(row.num_new for row in rows)], dtype=np.int32),
        context_lens=np.array([row.context_len for row in rows], np.int32),
        page_tables=(np.full_like(table, -1), table),
    )
    return batch, num_pages


def make_case(
    rows: Sequence[Row], page_size: int, num_kv_heads: int, head_dim: int, window: int, seed: int
) -> RaggedCase:
    generator = np.random.default_rng(seed)
    batch, num_pages = make_batch(rows, page_size, generator)
    pages = empty_pages(num_pages, page_size, num_kv_heads, head_dim)
    all_keys, all_values = [], []
    for index, row in enumerate(rows):
        keys, values = generator.standard_normal((2, row.context_len, num_kv_heads, head_dim), np.float32)
        all_keys.append(keys)
        all_values.append(values)
        first_needed = max(0, row.num_cached - window + 1) if window else 0
        table = batch.page_tables[1][index]
        for number in range(row.context_len):
            page = table[number // page_size]
            pages.keys[page, number % page_size] = keys[number]
            pages.values[page, number % page_size] = values[number]
        for passed in range(first_needed // page_size):
            pages.keys[table[passed]] = np.nan
            pages.values[table[passed]] = np.nan
            table[passed] = -1
    return RaggedCase(batch, pages, all_keys, all_values)
