"""Keys and values into pages, and pages onto pages."""

from __future__ import annotations

import numpy as np

from pagoda.kernels.base import FloatArray, IntArray, KVPages, RaggedBatch


def write_pages(keys: FloatArray, values: FloatArray, pages: KVPages, batch: RaggedBatch, group: int) -> None:
    lengths = np.diff(batch.row_starts)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    # Token t of row r is number context_len - (row_end - t) of its row.
    numbers = np.arange(len(keys)) + (batch.context_lens - batch.row_starts[1:])[rows]
    page_indices, slots = np.divmod(numbers, pages.keys.shape[1])
    held = batch.page_tables[group][rows, page_indices]
    if len(held) and held.min() < 0:
        raise IndexError(f"page table of group {group}: a token of the step has no page")
    pages.keys[held, slots] = keys
    pages.values[held, slots] = values


def copy_pages(pages: KVPages, sources: IntArray, targets: IntArray) -> None:
    pages.keys[targets] = pages.keys[sources]
    pages.values[targets] = pages.values[sources]


def new_pages(num_pages: int, page_size: int, num_kv_heads: int, head_dim: int) -> KVPages:
    """Empty pages of one layer. The system hands out real memory page by page, on first use."""
    shape = (num_pages, page_size, num_kv_heads, head_dim)
    return KVPages(np.zeros(shape, np.float32), np.zeros(shape, np.float32))
