"""Causal attention over pages, row by row: prompt chunks and single tokens alike, nothing padded."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from pagoda.kernels.base import FloatArray, IntArray, KVPages, RaggedBatch
from pagoda.kernels.reference.kv_types import from_bytes

# Queries taken together. It bounds the score matrix and skips most of what the causal mask would hide.
QUERY_TILE = 128


def attention(
    queries: FloatArray,
    pages: KVPages,
    batch: RaggedBatch,
    group: int,
    scale: float,
    window: int,
    accumulate: np.dtype[Any],
) -> FloatArray:
    output = np.empty_like(queries)
    tables = batch.page_tables[group]
    for row, (start, stop) in enumerate(pairwise(batch.row_starts.tolist())):
        context_len = int(batch.context_lens[row])
        for first in range(start, stop, QUERY_TILE):
            last = min(first + QUERY_TILE, stop)
            end = context_len - (stop - last)
            begin = max(0, end - (last - first) - window + 1) if window else 0
            keys, values = gather(pages, tables[row], begin, end)
            tile = queries[first:last].astype(accumulate) * accumulate.type(scale)
            output[first:last] = attend(
                tile, keys.astype(accumulate, copy=False), values.astype(accumulate, copy=False), window
            )
    return output


def gather(pages: KVPages, table: IntArray, begin: int, end: int) -> tuple[FloatArray, FloatArray]:
    """The keys and values of the tokens [begin, end) of one row, [C, K, E] each."""
    page_size, num_kv_heads, head_dim = pages.keys.shape[1:]
    first_page = begin // page_size
    held = table[first_page : -(-end // page_size)]
    if held.min() < 0:
        raise IndexError(f"page table: tokens {begin} to {end} are needed and one of their pages is not held")
    inside = slice(begin - first_page * page_size, end - first_page * page_size)
    keys, values = (
        (numbers[held] if scales is None else from_bytes(numbers[held], scales[held]))
        .reshape(-1, num_kv_heads, head_dim)[inside]
        .astype(np.float32, copy=False)
        for numbers, scales in ((pages.keys, pages.key_scales), (pages.values, pages.value_scales))
    )
    return keys, values


def attend(queries: FloatArray, keys: FloatArray, values: FloatArray, window: int) -> FloatArray:
    """[Q, H, E] over [C, K, E]; the queries are the last Q of the C tokens. All heads of a group in one product."""
    num_queries, num_heads, head_dim = queries.shape
    num_keys, num_kv_heads, _ = keys.shape
    grouped = queries.reshape(num_queries, num_kv_heads, -1, head_dim).transpose(1, 2, 0, 3)  # [K, G, Q, E]
    scores = grouped.reshape(num_kv_heads, -1, head_dim) @ keys.transpose(1, 2, 0)  # [K, G * Q, C]
    if num_queries > 1:
        by_query = scores.reshape(num_kv_heads, -1, num_queries, num_keys)
        by_query += causal_bias(num_queries, num_keys, window).astype(scores.dtype, copy=False)
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    total = scores.sum(axis=-1, keepdims=True, dtype=np.float64).astype(scores.dtype, copy=False)
    mixed = (scores @ values.transpose(1, 0, 2)) / total  # [K, G * Q, E]
    by_head = mixed.reshape(num_kv_heads, -1, num_queries, head_dim)
    return by_head.transpose(2, 0, 1, 3).reshape(num_queries, num_heads, head_dim)


def causal_bias(num_queries: int, num_keys: int, window: int) -> FloatArray:
    """[Q, C]: 0 where a query sees a key, -inf where it does not."""
    distance = np.arange(num_keys - num_queries, num_keys)[:, None] - np.arange(num_keys)
    hidden = distance < 0
    if window:
        hidden |= distance >= window
    return np.where(hidden, np.float32(-np.inf), np.float32(0.0))
