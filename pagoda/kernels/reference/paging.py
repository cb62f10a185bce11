"""Keys and values into pages, in the type of the cache, and pages onto pages."""

from __future__ import annotations

import numpy as np

from pagoda.core.cache import KVCacheType
from pagoda.kernels.base import NUMPY_TYPES, FloatArray, IntArray, KVPages, RaggedBatch
from pagoda.kernels.reference.kv_types import to_bytes, to_halves


def write_pages(keys: FloatArray, values: FloatArray, pages: KVPages, batch: RaggedBatch, group: int) -> None:
    lengths = np.diff(batch.row_starts)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    # Token t of row r is number context_len - (row_end - t) of its row.
    numbers = np.arange(len(keys)) + (batch.context_lens - batch.row_starts[1:])[rows]
    page_indices, slots = np.divmod(numbers, pages.keys.shape[1])
    held = batch.page_tables[group][rows, page_indices]
    if len(held) and held.min() < 0:
        raise IndexError(f"page table of group {group}: a token of the step has no page")
    for numbers, scales, vectors in (
        (pages.keys, pages.key_scales, keys),
        (pages.values, pages.value_scales, values),
    ):
        if scales is not None:
            numbers[held, slots], scales[held, slots] = to_bytes(vectors)
        else:
            numbers[held, slots] = to_halves(vectors) if numbers.dtype == np.float16 else vectors


def copy_pages(pages: KVPages, sources: IntArray, targets: IntArray) -> None:
    for array in (pages.keys, pages.values, pages.key_scales, pages.value_scales):
        if array is not None:
            array[targets] = array[sources]


def new_pages(
    num_pages: int, page_size: int, num_kv_heads: int, head_dim: int, kv_cache_type: KVCacheType = "f32"
) -> KVPages:
    """Empty pages of one layer. The system hands out real memory page by page, on first use."""
    shape = (num_pages, page_size, num_kv_heads, head_dim)
    keys, values = (np.zeros(shape, NUMPY_TYPES[kv_cache_type]) for _ in range(2))
    if kv_cache_type != "int8":
        return KVPages(keys, values)
    return KVPages(keys, values, *(np.zeros(shape[:-1], np.float32) for _ in range(2)))
