"""The map of pages against the page tables, page by page."""

from __future__ import annotations

import random
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.kv_cache import page_map
from pagoda.kv_cache.page_map import FIRST_OWNER, FREE, HELD, IDLE, SHARED, map_pages
from pagoda.kv_cache.pool import PagePool


def cells_of(found: page_map.PageMap) -> list[int]:
    return array("H", found.cells).tolist()


def random_pool(seed: int, num_pages: int) -> tuple[PagePool, list[list[int]]]:
    """Some owners with pages of their own and pages in common, some pages cached, some of those let go."""
    rng = random.Random(seed)
    pool = PagePool(num_pages)
    tables: list[list[int]] = [[] for _ in range(rng.randrange(1, 5))]
    for _ in range(rng.randrange(num_pages)):
        page = pool.take()
        owners = rng.sample(range(len(tables)), rng.choice([0, 1, 1, 1, min(2, len(tables))]))
        if not owners:
            pool.cache(page)
            pool.release(page)
            continue
        for position, owner in enumerate(owners):
            if position:
                pool.hold(page)
            tables[owner].append(page)
        if rng.random() < 0.3:
            pool.cache(page)
    return pool, tables


def expected(pool: PagePool, tables: list[list[int]], page: int) -> int:
    holders = [owner for owner, table in enumerate(tables) if page in table]
    if len(holders) == 1:
        return FIRST_OWNER + holders[0]
    if holders:
        return SHARED
    return FREE if page in pool.free else IDLE


@given(st.integers(0, 10_000), st.integers(1, 60), st.sampled_from([7, 20, 1000]))
def test_every_cell_names_the_owner_of_its_page(seed: int, num_pages: int, most_cells: int):
    pool, tables = random_pool(seed, num_pages)
    found = map_pages(pool, tables, most_cells)
    cells = cells_of(found)
    assert found.num_pages == num_pages and len(cells) <= most_cells
    assert cells == [expected(pool, tables, page) for page in range(0, num_pages, found.stride)]


def test_a_large_pool_is_thinned_out():
    pool = PagePool(1_000_000)
    held = [pool.take() for _ in range(500)]
    found = map_pages(pool, [held], 20_000)
    cells = cells_of(found)
    assert found.stride == 50 and len(cells) == 20_000
    assert cells[:10] == [FIRST_OWNER] * 10 and cells[10:] == [FREE] * 19_990


def test_beyond_a_bound_owners_are_not_looked_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(page_map, "MOST_LOOKED_UP", 3)
    pool = PagePool(6)
    tables = [[pool.take(), pool.take()], [pool.take(), pool.take()]]
    assert cells_of(map_pages(pool, tables)) == [FIRST_OWNER, FIRST_OWNER, HELD, HELD, FREE, FREE]
