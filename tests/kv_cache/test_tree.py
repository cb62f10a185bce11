from __future__ import annotations

import pytest

from pagoda.core.cache import CacheGroup
from pagoda.kv_cache.pool import NO_PAGE, PagePool
from pagoda.kv_cache.tree import Node, PrefixTree

FULL = CacheGroup("full", (0,), 1, 8)
WINDOW = CacheGroup("window", (1,), 1, 8, window=8)


class Forest:
    """A tree over its pools, with a hand for the things that the manager does around it."""

    def __init__(self, *groups: CacheGroup, num_pages: int = 12) -> None:
        self.pools = [PagePool(num_pages) for _ in groups]
        self.tree = PrefixTree(groups, self.pools)

    def plant(self, name: bytes, parent: Node | None = None) -> Node:
        return self.tree.insert(name, parent, [pool.take() for pool in self.pools])

    def let_go(self, node: Node, now: int) -> None:
        for group, pool in enumerate(self.pools):
            if node.pages[group] != NO_PAGE and pool.release(node.pages[group]):
                self.tree.became_idle(group, node.pages[group], now)

    def names(self) -> set[bytes]:
        return {node.name for node in self.tree}


def chain(forest: Forest, *names: bytes) -> list[Node]:
    nodes: list[Node] = []
    for name in names:
        nodes.append(forest.plant(name, nodes[-1] if nodes else None))
    return nodes


def test_the_least_recently_used_leaf_leaves_first() -> None:
    forest = Forest(FULL)
    old, middle, new = (forest.plant(name) for name in (b"old", b"middle", b"new"))
    for now, node in ((1, old), (2, middle), (3, new)):
        forest.let_go(node, now)
    left = []
    while forest.tree.evict(0):
        forest.tree.check_integrity()
        left.append(forest.names())
    assert left == [{b"middle", b"new"}, {b"new"}, set()]


def test_a_page_leaves_only_after_its_children() -> None:
    forest = Forest(FULL)
    root, leaf = chain(forest, b"root", b"leaf")
    forest.let_go(root, 1)  # used longer ago, and still the leaf goes first
    forest.let_go(leaf, 5)
    assert forest.tree.evict(0)
    assert forest.names() == {b"root"}
    assert forest.tree.evict(0)
    assert not forest.tree.evict(0)


def test_in_one_step_the_deeper_page_leaves_first() -> None:
    forest = Forest(FULL)
    nodes = chain(forest, b"a", b"b", b"c")
    for node in nodes:
        forest.let_go(node, 4)
    assert forest.tree.evict(0)
    assert forest.names() == {b"a", b"b"}


def test_a_held_page_stays() -> None:
    forest = Forest(FULL)
    node = forest.plant(b"held")
    assert not forest.tree.evict(0)
    forest.let_go(node, 1)
    forest.pools[0].hold(node.pages[0])
    assert not forest.tree.evict(0)
    forest.let_go(node, 2)
    forest.tree.check_integrity()
    assert forest.tree.evict(0)


def test_a_page_used_again_takes_its_new_place_in_the_order() -> None:
    forest = Forest(FULL)
    first, second = forest.plant(b"first"), forest.plant(b"second")
    forest.let_go(first, 1)
    forest.let_go(second, 2)
    forest.pools[0].hold(first.pages[0])
    forest.let_go(first, 3)  # its entry of step 1 is stale now
    assert forest.tree.evict(0)
    assert forest.names() == {b"first"}


def test_stale_offers_are_cleared_away() -> None:
    forest = Forest(FULL, num_pages=4)
    node = forest.plant(b"busy")
    for now in range(1, 200):
        forest.let_go(node, now)
        forest.pools[0].hold(node.pages[0])
        assert len(forest.tree._idle[0]) <= 2 * 4 + 1
    forest.let_go(node, 200)
    forest.tree.check_integrity()
    assert forest.tree.evict(0)


def test_a_window_page_leaves_alone_and_its_node_stays() -> None:
    forest = Forest(FULL, WINDOW)
    root, leaf = chain(forest, b"root", b"leaf")
    forest.let_go(root, 1)
    forest.let_go(leaf, 2)
    assert forest.tree.evict(1)
    assert root.pages[1] == NO_PAGE and root.pages[0] != NO_PAGE  # though it is no leaf
    assert forest.names() == {b"root", b"leaf"}
    forest.tree.check_integrity()


def test_a_full_page_takes_its_window_page_along() -> None:
    forest = Forest(FULL, WINDOW)
    node = forest.plant(b"leaf")
    forest.let_go(node, 1)
    assert forest.tree.evict(0)
    assert not forest.names()
    assert [pool.num_available for pool in forest.pools] == [12, 12]
    assert [len(pool.free) for pool in forest.pools] == [12, 12]
    assert not forest.tree.evict(1)  # what it left on offer is stale


def test_in_a_tree_of_windows_alone_empty_nodes_go_when_nothing_hangs_from_them() -> None:
    forest = Forest(WINDOW)
    nodes = chain(forest, b"a", b"b", b"c")
    for now, node in enumerate(nodes, 1):
        forest.let_go(node, now)
    assert forest.tree.evict(0)
    assert forest.names() == {b"a", b"b", b"c"}  # `a` is empty but leads to others
    assert forest.tree.evict(0)
    assert forest.tree.evict(0)
    assert not forest.names()
    forest.tree.check_integrity()


def test_a_walk_ends_at_the_first_gap_unless_all_groups_are_windows() -> None:
    full = Forest(FULL)
    chain(full, b"a", b"b")
    assert [node.name for node in full.tree.walk([b"a", b"x", b"b"]) if node] == [b"a"]
    windows = Forest(WINDOW)
    chain(windows, b"a", b"b")
    found = windows.tree.walk([b"a", b"x", b"b"])
    assert [node.name if node else None for node in found] == [b"a", None, b"b"]


def test_clear_gives_up_all_that_nobody_holds() -> None:
    forest = Forest(FULL, WINDOW)
    held, *rest = chain(forest, b"a", b"b", b"c")
    for node in rest:
        forest.let_go(node, 1)
    assert forest.tree.clear() == 2
    assert forest.names() == {b"a"}
    assert held.pages[0] != NO_PAGE
    forest.tree.check_integrity()


def test_the_integrity_check_sees_a_wrong_count_of_children() -> None:
    forest = Forest(FULL)
    root, _ = chain(forest, b"a", b"b")
    root.num_children = 0
    with pytest.raises(AssertionError, match="children"):
        forest.tree.check_integrity()
    root.num_children = 1


def test_the_integrity_check_sees_an_idle_page_that_is_not_on_offer() -> None:
    forest = Forest(FULL)
    node = forest.plant(b"a")
    forest.pools[0].release(node.pages[0])
    with pytest.raises(AssertionError, match="offer"):
        forest.tree.check_integrity()
