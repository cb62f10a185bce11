from __future__ import annotations

import pytest

from pagoda.core.cache import CacheGroup
from pagoda.core.plan import PageCopy
from pagoda.kv_cache import NO_PAGE, KVCacheManager, PageTable, TableEdit, extend_chain, root_hash
from pagoda.kv_cache.manager import CacheState

FULL = CacheGroup("full", (0,), 1, 8)
WINDOW = CacheGroup("window", (1,), 1, 8, window=8)
SIZE = 4


def manager(*groups: CacheGroup, num_pages: int = 10, caching: bool = True) -> KVCacheManager:
    groups = groups or (FULL,)
    return KVCacheManager(groups, [num_pages] * len(groups), SIZE, caching)


def names(*tokens: int) -> list[bytes]:
    """Names of pages that each repeat one token."""
    return extend_chain(root_hash("m"), [token for token in tokens for _ in range(SIZE)], SIZE)


def opened(cache: KVCacheManager, *tokens: int, usable: int | None = None) -> PageTable:
    chain = names(*tokens)
    return cache.open_table(cache.match(chain, len(chain) if usable is None else usable), chain)


def computed(cache: KVCacheManager, *tokens: int) -> PageTable:
    """A table whose pages, one for each token, are computed and published."""
    table = opened(cache, *tokens)
    assert cache.grow(table, len(tokens) * SIZE) is not None
    cache.publish(table, len(tokens) * SIZE)
    return table


def test_grow_adds_only_the_pages_that_are_missing() -> None:
    cache = manager()
    table = opened(cache)
    assert cache.grow(table, 5) == [[0, 1]]
    assert cache.grow(table, 8) == [[]]
    assert cache.grow(table, 9) == [[2]]
    assert table.pages == [[0, 1, 2]]


def test_grow_refuses_without_a_change_when_pages_are_short() -> None:
    cache = manager(FULL, WINDOW, num_pages=3)
    table = opened(cache)
    cache.grow(table, 8)
    assert cache.grow(table, 16) is None
    assert [len(pages) for pages in table.pages] == [2, 2]
    assert [pool.num_available for pool in cache.pools] == [1, 1]


def test_a_match_is_the_longest_published_prefix() -> None:
    cache = manager()
    computed(cache, 1, 2, 3)
    assert cache.match(names(1, 2, 9), 3).num_pages == 2
    assert cache.match(names(1, 2, 3), 2).num_pages == 2
    assert cache.match(names(9, 2, 3), 3).num_pages == 0
    assert cache.match(names(1, 2, 3, 4), 4).pages == [[0, 1, 2]]


def test_a_match_counts_the_pages_that_it_would_take_from_the_evictable() -> None:
    cache = manager()
    table = computed(cache, 1, 2)
    assert cache.match(names(1, 2), 2).num_idle == [0]
    cache.close_table(table)
    assert cache.match(names(1, 2), 2).num_idle == [2]
    again = opened(cache, 1, 2)
    assert cache.pools[0].num_idle == 0
    cache.close_table(again)


def test_nothing_matches_when_caching_is_off() -> None:
    cache = manager(caching=False)
    table = computed(cache, 1, 2)
    assert cache.match(names(1, 2), 2).num_pages == 0
    cache.close_table(table)
    assert len(cache.pools[0].free) == 10


def test_published_pages_outlive_their_sequence_until_the_room_is_needed() -> None:
    cache = manager(num_pages=3)
    cache.close_table(computed(cache, 1, 2, 3))
    assert cache.pools[0].num_available == 3
    cache.clock += 1
    other = opened(cache)
    assert cache.grow(other, 2 * SIZE) == [[2, 1]]  # the deepest first
    assert cache.match(names(1, 2, 3), 3).num_pages == 1


def test_a_fork_shares_whole_pages_and_copies_the_last_one() -> None:
    cache = manager()
    table = opened(cache)
    cache.grow(table, 10)
    forked = cache.fork(table, 10, [])
    assert forked is not None
    child, copies = forked
    assert copies == [PageCopy(0, 2, 3)]
    assert child.pages == [[0, 1, 3]]
    assert [cache.pools[0].refs[page] for page in range(4)] == [2, 2, 1, 1]
    cache.close_table(table)
    assert [cache.pools[0].refs[page] for page in range(4)] == [1, 1, 0, 1]


def test_a_fork_at_a_page_boundary_copies_nothing() -> None:
    cache = manager(num_pages=2)
    table = opened(cache)
    cache.grow(table, 8)
    forked = cache.fork(table, 8, [])
    assert forked is not None
    assert forked[1] == []
    assert forked[0].pages == [[0, 1]]


def test_a_fork_that_needs_a_page_and_finds_none_changes_nothing() -> None:
    cache = manager(num_pages=2)
    table = opened(cache)
    cache.grow(table, 7)
    assert cache.fork(table, 7, []) is None
    assert cache.pools[0].refs == [1, 1]


def test_a_fork_of_a_window_copies_in_every_group_and_leaves_the_dropped_alone() -> None:
    cache = manager(FULL, WINDOW, num_pages=20)
    table = opened(cache)
    cache.grow(table, 18)
    cache.drop_behind(table, 18)
    forked = cache.fork(table, 18, [])
    assert forked is not None
    child, copies = forked
    assert [copy.group for copy in copies] == [0, 1]
    assert child.pages[1][:2] == [NO_PAGE, NO_PAGE]
    assert child.first_held == [0, 2]


def test_equal_pages_are_exchanged_for_the_published_one() -> None:
    cache = manager()
    first = opened(cache, 1, 2)
    second = opened(cache, 1, 2)
    cache.grow(first, 8)
    cache.grow(second, 8)
    assert cache.publish(first, 8) == []
    assert cache.publish(second, 8) == [TableEdit(0, 0, 0), TableEdit(0, 1, 1)]
    assert second.pages == [[0, 1]]
    assert cache.pools[0].num_used == 2


def test_only_full_pages_with_names_are_published() -> None:
    cache = manager()
    table = opened(cache, 1)
    cache.grow(table, 12)
    cache.publish(table, 12)
    assert table.num_published == 1
    table.names.extend(names(1, 2, 3)[1:])
    cache.publish(table, 11)
    assert table.num_published == 2


def test_a_window_gives_back_what_no_later_token_can_see() -> None:
    cache = manager(FULL, WINDOW, num_pages=20)
    table = opened(cache)
    cache.grow(table, 20)
    # The token at position 14 sees 7..14, the one at 15 sees 8..15.
    cache.drop_behind(table, 14)
    assert table.first_held == [0, 1]
    cache.drop_behind(table, 15)
    assert table.first_held == [0, 2]
    assert table.pages[1][:3] == [NO_PAGE, NO_PAGE, 2]
    assert NO_PAGE not in table.pages[0]


def test_a_match_needs_of_a_window_group_only_the_pages_in_the_window() -> None:
    cache = manager(FULL, WINDOW, num_pages=20)
    table = computed(cache, 1, 2, 3, 4)
    cache.drop_behind(table, 16)
    match = cache.match(names(1, 2, 3, 4), 4)
    assert match.num_pages == 4
    assert match.pages == [[0, 1, 2, 3], [2, 3]]
    again = cache.open_table(match, names(1, 2, 3, 4))
    assert again.pages[1] == [NO_PAGE, NO_PAGE, 2, 3]


def test_a_match_falls_back_to_a_length_that_every_group_can_continue() -> None:
    cache = manager(FULL, WINDOW, num_pages=20)
    table = computed(cache, 1, 2, 3, 4, 5)
    cache.close_table(table)
    nodes = [cache.tree.get(name) for name in names(1, 2, 3, 4, 5)]
    assert nodes[3] is not None
    cache.tree._drop_page(nodes[3], 1)
    # 5 pages need the window's pages 3 and 4, 4 pages need 2 and 3, 3 pages need 1 and 2.
    assert cache.match(names(1, 2, 3, 4, 5), 5).num_pages == 3


def test_a_returning_sequence_fills_the_window_page_that_was_given_up() -> None:
    cache = manager(FULL, WINDOW, num_pages=20)
    cache.close_table(computed(cache, 1, 2))
    node = cache.tree.get(names(1, 2)[1])
    assert node is not None
    cache.tree._drop_page(node, 1)
    table = opened(cache, 1, 2, usable=0)
    cache.grow(table, 8)
    edits = cache.publish(table, 8)
    assert TableEdit(0, 0, 0) in edits
    assert node.pages[1] == table.pages[1][1]
    cache.close_table(table)


def test_a_promise_keeps_its_pages_from_others() -> None:
    cache = manager(num_pages=6)
    promised, other = opened(cache), opened(cache)
    assert cache.reserve(promised, [4])
    assert cache.grow(other, 3 * SIZE) is None
    assert cache.grow(other, 2 * SIZE) is not None
    assert cache.room(promised) == 4 * SIZE
    assert cache.grow(promised, 4 * SIZE) is not None
    assert promised.reserved == [0]
    cache.close_table(other)
    assert cache.pools[0].num_available == 2


def test_forks_that_follow_leave_promises_what_they_took() -> None:
    cache = manager(num_pages=5)
    parent = opened(cache, 7)
    cache.grow(parent, 2 * SIZE)
    cache.close_table(computed(cache, 7))  # an equal page, cached and held by nobody
    forked = cache.fork(parent, SIZE + 1, names(7))
    assert forked is not None
    promised = opened(cache)
    assert cache.reserve(promised, [2]) and cache.pools[0].num_available == 0
    for table in (forked[0], parent):
        cache.publish(table, SIZE)
    assert parent.pages[0][0] == forked[0].pages[0][0] and cache.pools[0].num_available == 0
    cache.check_integrity()
    assert cache.grow(promised, 2 * SIZE) is not None


def test_a_promise_that_cannot_be_kept_is_not_made() -> None:
    cache = manager(FULL, WINDOW, num_pages=6)
    other = opened(cache)
    cache.grow(other, 12)
    table = opened(cache)
    assert not cache.reserve(table, [2, 4])
    assert table.reserved == [0, 0] and not table.promised
    assert cache.reserve(table, [3, 3])
    cache.close_table(table)
    assert [pool.num_reserved for pool in cache.pools] == [0, 0]


def test_a_promise_counts_the_pages_that_are_held_already() -> None:
    cache = manager(num_pages=4)
    table = opened(cache)
    cache.grow(table, 8)
    assert cache.reserve(table, [4])
    assert table.reserved == [2]


def test_a_promise_to_a_window_moves_on_with_it_and_never_grows() -> None:
    cache = manager(WINDOW, num_pages=10)
    table = opened(cache)
    assert cache.reserve(table, [4])
    for position in range(100):
        assert cache.grow(table, position + 1) is not None
        cache.drop_behind(table, position)
        held = len(table.pages[0]) - table.first_held[0]
        assert held + table.reserved[0] == 4
    while cache.grow(table, len(table.pages[0]) * SIZE + 1) is not None:
        pass  # takes more than it was promised
    cache.drop_behind(table, len(table.pages[0]) * SIZE)
    held = len(table.pages[0]) - table.first_held[0]
    assert held + table.reserved[0] == 4


def test_most_pages_of_a_window_do_not_grow_with_the_text() -> None:
    cache = manager(FULL, WINDOW)
    assert cache.most_pages(0, 1000, 16) == 250
    assert cache.most_pages(1, 1000, 16) == 7
    assert cache.most_pages(1, 3, 16) == 1


def busy(cache: KVCacheManager) -> list[PageTable]:
    """Some idle pages used at different times, some shared, some promised, some behind a window."""
    cache.close_table(computed(cache, 7, 8, 9))
    cache.clock += 1
    cache.close_table(computed(cache, 7, 5))
    cache.clock += 1
    running = computed(cache, 1, 2, 3, 4)
    cache.drop_behind(running, 16)
    forked = cache.fork(running, 15, running.names[:3])
    assert forked is not None
    promised = opened(cache, 7, 8)
    assert cache.reserve(promised, [4] * len(cache.groups))
    return [running, forked[0], promised]


def evictions(cache: KVCacheManager) -> list[tuple[int, ...]]:
    order = []
    while cache.tree.evict(0):
        order.append(tuple(cache.pools[0].free[-1:]))
    return order


@pytest.mark.parametrize("groups", [(FULL,), (FULL, WINDOW), (WINDOW,)])
def test_a_restored_manager_is_the_same_in_every_respect(groups: tuple[CacheGroup, ...]) -> None:
    cache = manager(*groups, num_pages=24)
    tables = busy(cache)
    state = cache.state()
    copy = manager(*groups, num_pages=24)
    copies = [
        PageTable(
            [list(pages) for pages in table.pages],
            list(table.names),
            table.num_published,
            list(table.first_held),
            list(table.reserved),
            list(table.promised),
        )
        for table in tables
    ]
    copy.restore(state, copies)
    copy.clock = cache.clock
    copy.check_integrity()
    assert copy.state() == state
    assert [pool.num_available for pool in copy.pools] == [pool.num_available for pool in cache.pools]
    assert evictions(copy) == evictions(cache)
    for table, twin in zip(tables, copies, strict=True):
        cache.close_table(table)
        copy.close_table(twin)
    assert copy.state() == cache.state()
    assert evictions(copy) == evictions(cache)


def test_the_state_is_plain_data() -> None:
    import msgspec

    cache = manager(FULL, WINDOW, num_pages=24)
    tables = busy(cache)
    data = msgspec.msgpack.encode(cache.state())
    assert msgspec.msgpack.decode(data, type=CacheState) == cache.state()
    for table in tables:
        cache.close_table(table)


def test_the_integrity_check_sees_a_page_that_two_tables_took() -> None:
    cache = manager()
    first, second = opened(cache), opened(cache)
    cache.grow(first, 4)
    cache.grow(second, 4)
    second.pages[0][0] = 0
    with pytest.raises(AssertionError, match="reference counts"):
        cache.check_integrity()
    second.pages[0][0] = 1
