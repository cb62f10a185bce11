"""Who owns each page of a pool, as small numbers: made to be drawn, and cheap enough to be made between two steps."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from pagoda.kv_cache.pool import PagePool

FREE, IDLE, SHARED, HELD, FIRST_OWNER = range(5)
"""Free; in the prefix cache and held by nobody; held by several; held by one that is not told; held by owner 0."""

MOST_CELLS = 20_000
MOST_LOOKED_UP = 100_000


class PageMap(msgspec.Struct, frozen=True, array_like=True):
    num_pages: int
    stride: int
    """Cell i speaks of page i * stride; the pages between are left out."""
    cells: bytes
    """Two bytes a cell, little-endian."""


def map_pages(pool: PagePool, tables: Sequence[Sequence[int]], most_cells: int = MOST_CELLS) -> PageMap:
    """`tables[i]` are the pages that owner i holds. Beyond `MOST_LOOKED_UP` pages in all, owners are not told."""
    stride = max(1, -(-pool.num_pages // most_cells))
    refs = np.array(pool.refs[::stride], np.int64)
    is_cached = np.frombuffer(bytes(pool.cached[::stride]), np.uint8) != 0
    cells = np.where(is_cached, IDLE, FREE).astype("<u2")
    cells[refs == 1] = HELD
    cells[refs > 1] = SHARED
    num_left = MOST_LOOKED_UP
    for owner, table in enumerate(tables):
        if len(table) > num_left:
            break
        num_left -= len(table)
        pages = np.array(table, np.int64)
        places = pages[pages % stride == 0] // stride
        cells[places[cells[places] == HELD]] = FIRST_OWNER + owner
    return PageMap(pool.num_pages, stride, cells.tobytes())
