from __future__ import annotations

import pytest

from pagoda.kv_cache.pool import PagePool


def test_pages_are_handed_out_from_the_first_and_reused_last_in_first_out() -> None:
    pool = PagePool(3)
    assert [pool.take(), pool.take()] == [0, 1]
    pool.release(0)
    assert pool.take() == 0
    assert pool.take() == 2
    assert pool.num_available == 0


def test_a_page_is_free_when_its_last_holder_lets_go() -> None:
    pool = PagePool(2)
    page = pool.take()
    pool.hold(page)
    assert not pool.release(page)
    assert pool.num_used == 1
    assert not pool.release(page)
    assert pool.num_used == 0
    assert pool.num_available == 2
    pool.check_integrity([0, 0])


def test_a_cached_page_becomes_idle_and_still_counts_as_available() -> None:
    pool = PagePool(2)
    page = pool.take()
    pool.cache(page)
    assert pool.release(page)
    assert (pool.num_idle, pool.num_used, pool.num_available) == (1, 0, 2)
    pool.hold(page)
    assert (pool.num_idle, pool.num_used, pool.num_available) == (0, 1, 1)
    pool.release(page)
    pool.uncache(page)
    assert (pool.num_idle, len(pool.free)) == (0, 2)
    pool.check_integrity([0, 0])


def test_promised_pages_are_not_available() -> None:
    pool = PagePool(4)
    pool.num_reserved = 3
    assert pool.num_available == 1


def lost_page(pool: PagePool) -> None:
    pool.free.pop()


def page_free_twice(pool: PagePool) -> None:
    pool.free.append(pool.free[0])


def free_page_in_use(pool: PagePool) -> None:
    pool.cached[pool.free[0]] = 1


def wrong_idle_count(pool: PagePool) -> None:
    pool.num_idle += 1


def promise_too_many(pool: PagePool) -> None:
    pool.num_reserved = 5


def wrong_reference_count(pool: PagePool) -> None:
    pool.refs[0] += 1


@pytest.mark.parametrize(
    "damage",
    [lost_page, page_free_twice, free_page_in_use, wrong_idle_count, promise_too_many, wrong_reference_count],
)
def test_the_integrity_check_sees(damage: object) -> None:
    pool = PagePool(4)
    pool.take()
    pool.check_integrity([1, 0, 0, 0])
    assert callable(damage)
    damage(pool)
    with pytest.raises(AssertionError):
        pool.check_integrity([1, 0, 0, 0])
