"""The prefix tree: computed pages by the hash of everything up to and including them.

Every edge is one page. Because a page's name is a chain over its whole prefix, a dictionary finds any node at once:
a match costs by its length, not by the size of the tree.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from pagoda.core.cache import CacheGroup
from pagoda.kv_cache.pool import NO_PAGE, PagePool


class Node:
    """A full page of tokens after a given prefix, and where each cache group keeps it (NO_PAGE: given up)."""

    __slots__ = ("depth", "last_used", "name", "num_children", "pages", "parent")

    def __init__(self, name: bytes, parent: Node | None, pages: list[int]) -> None:
        self.name = name
        self.parent = parent
        self.pages = pages
        self.num_children = 0
        self.depth: int = parent.depth + 1 if parent else 0
        self.last_used = [0] * len(pages)  # by group


class PrefixTree:
    """Who is in the cache, and who leaves it first: the least recently used page that nobody holds.

    A page of a full group leaves only as a leaf, since its children are of no use without it. A page of a window
    group leaves by itself: a longer match may no longer need it.
    """

    def __init__(self, groups: Sequence[CacheGroup], pools: Sequence[PagePool]) -> None:
        self._pools = pools
        self._is_full = [group.kind == "full" for group in groups]
        self._has_full = any(self._is_full)
        self._nodes: dict[bytes, Node] = {}
        self._owners: list[dict[int, Node]] = [{} for _ in groups]  # page -> node, by group
        # Idle pages by (last_used, -depth, page); entries go stale and are skipped when they come up.
        self._idle: list[list[tuple[int, int, int]]] = [[] for _ in groups]

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes.values())

    def get(self, name: bytes) -> Node | None:
        return self._nodes.get(name)

    def walk(self, names: Sequence[bytes]) -> list[Node | None]:
        """The nodes along `names`. With a full group the walk ends at the first gap, which nothing can follow."""
        path: list[Node | None] = []
        for name in names:
            node = self._nodes.get(name)
            if node is None and self._has_full:
                break
            path.append(node)
        return path

    def insert(self, name: bytes, parent: Node | None, pages: list[int]) -> Node:
        """Remember pages that somebody holds. The name must be new."""
        node = Node(name, parent, pages)
        self._nodes[name] = node
        if parent is not None:
            parent.num_children += 1
        for group, page in enumerate(pages):
            if page != NO_PAGE:
                self.attach(node, group, page)
        return node

    def attach(self, node: Node, group: int, page: int) -> None:
        node.pages[group] = page
        self._owners[group][page] = node
        self._pools[group].cache(page)

    def became_idle(self, group: int, page: int, now: int) -> None:
        """Nobody holds this page any more; it may be given up from here on."""
        node = self._owners[group][page]
        node.last_used[group] = now
        if len(self._idle[group]) > 2 * self._pools[group].num_pages:
            self._offer_all(group)  # mostly stale entries by now
        else:
            heapq.heappush(self._idle[group], (now, -node.depth, page))

    def evict(self, group: int) -> bool:
        """Give up the least recently used idle page of the group; False when there is none."""
        heap = self._idle[group]
        while heap:
            last_used, minus_depth, page = heapq.heappop(heap)
            node = self._owners[group].get(page)
            if node is None or self._pools[group].refs[page]:
                continue
            if (node.last_used[group], -node.depth) != (last_used, minus_depth):
                continue
            if self._is_full[group]:
                if node.num_children:
                    continue  # comes back when its last child goes
                self._drop_leaf(node)
            else:
                self._drop_page(node, group)
                self._forget_if_empty(node)
            return True
        return False

    def clear(self) -> int:
        """Give up every idle page; how many pages of the first group became free."""
        before = len(self._pools[0].free)
        for group in range(len(self._pools)):
            while self.evict(group):
                pass
        return len(self._pools[0].free) - before

    def _drop_leaf(self, node: Node) -> None:
        for group, page in enumerate(node.pages):
            if page != NO_PAGE:
                self._drop_page(node, group)
        self._forget_if_empty(node)

    def _drop_page(self, node: Node, group: int) -> None:
        page = node.pages[group]
        del self._owners[group][page]
        node.pages[group] = NO_PAGE
        self._pools[group].uncache(page)

    def _forget_if_empty(self, node: Node | None) -> None:
        """Remove nodes that hold nothing and lead nowhere; a parent that became a leaf may now be evicted."""
        while node is not None and not node.num_children and all(page == NO_PAGE for page in node.pages):
            del self._nodes[node.name]
            parent = node.parent
            if parent is None:
                return
            parent.num_children -= 1
            if not parent.num_children:
                self._offer(parent)
            node = parent

    def _offer(self, node: Node) -> None:
        for group, page in enumerate(node.pages):
            if self._is_full[group] and page != NO_PAGE and not self._pools[group].refs[page]:
                heapq.heappush(self._idle[group], (node.last_used[group], -node.depth, page))

    def _offer_all(self, group: int) -> None:
        refs = self._pools[group].refs
        owners = self._owners[group].items()
        self._idle[group] = [(node.last_used[group], -node.depth, page) for page, node in owners if not refs[page]]
        heapq.heapify(self._idle[group])

    def offer_all(self) -> None:
        """Put every idle page on offer, after the tree was restored from a snapshot."""
        for group in range(len(self._pools)):
            self._offer_all(group)

    def check_integrity(self) -> None:
        children: dict[bytes, int] = {}
        for node in self._nodes.values():
            if node.parent is not None:
                assert self._nodes.get(node.parent.name) is node.parent, "a node hangs from one that left the tree"
                children[node.parent.name] = children.get(node.parent.name, 0) + 1
            for group, page in enumerate(node.pages):
                if page == NO_PAGE:
                    continue
                assert self._owners[group][page] is node, "two nodes claim one page"
                assert self._pools[group].cached[page], "a node names a page that is not cached"
                if self._is_full[group] and self._pools[group].refs[page] and node.parent is not None:
                    above = node.parent.pages[group]
                    assert self._pools[group].refs[above], "a held page stands on one that could be evicted"
        for node in self._nodes.values():
            assert node.num_children == children.get(node.name, 0), "the count of children is off"
            assert node.num_children or any(page != NO_PAGE for page in node.pages), "an empty leaf stayed"
        for group, pool in enumerate(self._pools):
            assert sum(pool.cached) == len(self._owners[group]), "a cached page is in no node"
            self._check_offers(group)

    def _check_offers(self, group: int) -> None:
        """Every idle page that may leave must be on offer, or it would never leave."""
        offered = set(self._idle[group])
        for page, node in self._owners[group].items():
            if self._pools[group].refs[page] or (self._is_full[group] and node.num_children):
                continue
            assert (node.last_used[group], -node.depth, page) in offered, "an idle page is not on offer"
