"""Who owns which page: page tables over the pools and the prefix tree, the one door the scheduler uses."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from pagoda.core.cache import CacheGroup
from pagoda.core.plan import PageCopy
from pagoda.kv_cache.pool import NO_PAGE, PagePool
from pagoda.kv_cache.tree import Node, PrefixTree


@dataclass(eq=False, slots=True)
class PageTable:
    """One sequence's pages. All groups have the same length; a window group has NO_PAGE behind its window."""

    pages: list[list[int]]
    names: list[bytes] = field(default_factory=list)  # hashes of the full pages whose tokens are known
    num_published: int = 0  # leading pages that are in the prefix tree
    first_held: list[int] = field(default_factory=list)  # by group: entries before this one are NO_PAGE
    reserved: list[int] = field(default_factory=list)  # by group: pages promised and not taken yet
    promised: list[int] = field(default_factory=list)  # by group: held and reserved together, if it has a promise


class TableEdit(NamedTuple):
    """An entry of a page table that changed after it was sent to the executor."""

    group: int
    entry: int
    page: int


class PrefixMatch(NamedTuple):
    """How much of a prompt is cached. `num_idle` pages of each group would stop being evictable if it were used."""

    num_pages: int
    pages: list[list[int]]  # by group: the pages it would hold, the last of them for page num_pages - 1
    num_idle: list[int]


class NodeState(msgspec.Struct, frozen=True):
    name: bytes
    parent: bytes
    pages: tuple[int, ...]
    last_used: tuple[int, ...]


class CacheState(msgspec.Struct, frozen=True):
    """Everything needed to rebuild the cache's bookkeeping; page tables are kept by their sequences."""

    free: tuple[tuple[int, ...], ...]
    nodes: tuple[NodeState, ...]


_live_managers: weakref.WeakSet[KVCacheManager] = weakref.WeakSet()


def live_managers() -> Iterable[KVCacheManager]:
    """Every manager still in use, so that tests can check them all."""
    return list(_live_managers)


class KVCacheManager:
    """Allocates, shares, publishes and frees pages. Purely bookkeeping: it never sees a token or a tensor."""

    def __init__(
        self, groups: Sequence[CacheGroup], num_pages: Sequence[int], page_size: int, enable_prefix_caching: bool = True
    ) -> None:
        self.groups = tuple(groups)
        self.page_size = page_size
        self.enable_prefix_caching = enable_prefix_caching
        self.pools = [PagePool(count) for count in num_pages]
        self.tree = PrefixTree(self.groups, self.pools)
        self.has_windows = any(group.window for group in self.groups)
        self.clock = 0  # moves once a step; orders what was used when
        self._open: dict[int, PageTable] = {}
        _live_managers.add(self)

    # -- sizes ---------------------------------------------------------------------------------------------------

    def num_pages_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.page_size)

    def most_pages(self, group: int, num_tokens: int, num_step_tokens: int) -> int:
        return self.groups[group].most_pages(num_tokens, num_step_tokens, self.page_size)

    def room(self, table: PageTable) -> int:
        """How many more tokens the table could take with the pages that are available to it."""
        pages = min(pool.num_available + kept for pool, kept in zip(self.pools, table.reserved, strict=True))
        return max(0, pages) * self.page_size

    # -- a sequence's life -----------------------------------------------------------------------------------------

    def match(self, names: Sequence[bytes], max_pages: int) -> PrefixMatch:
        """The longest cached prefix that every group can continue from. Changes nothing."""
        path = self.tree.walk(names[:max_pages]) if self.enable_prefix_caching else []
        path = path[: self._usable_length(path)]
        needed = [self._needed(path, group) for group in range(len(self.groups))]
        pages = [[node.pages[group] for node in nodes if node] for group, nodes in enumerate(needed)]
        num_idle = [sum(not pool.refs[page] for page in held) for pool, held in zip(self.pools, pages, strict=True)]
        return PrefixMatch(len(path), pages, num_idle)

    def open_table(self, match: PrefixMatch, names: list[bytes]) -> PageTable:
        """Start a sequence on the pages of a match. `names` stays the caller's, who adds to it as pages fill."""
        table = PageTable(
            pages=[[] for _ in self.groups],
            names=names,
            num_published=match.num_pages,
            first_held=[match.num_pages - len(pages) for pages in match.pages],
            reserved=[0] * len(self.groups),
        )
        for group, pool in enumerate(self.pools):
            for page in match.pages[group]:
                pool.hold(page)
            table.pages[group] = [NO_PAGE] * table.first_held[group] + match.pages[group]
        self._open[id(table)] = table
        return table

    def grow(self, table: PageTable, num_tokens: int) -> list[list[int]] | None:
        """Make room for `num_tokens` in all. The pages added, by group; None, and no change, when there are too few."""
        count = self.num_pages_for(num_tokens) - len(table.pages[0])
        if count <= 0:
            return [[] for _ in self.groups]
        for pool, kept in zip(self.pools, table.reserved, strict=True):
            if count > pool.num_available + kept:
                return None
        added = []
        for group, kept in enumerate(table.reserved):
            if kept:
                self._promise(table, group, -min(count, kept))
            pages = [self._take(group)] if count == 1 else [self._take(group) for _ in range(count)]
            table.pages[group] += pages
            added.append(pages)
        return added

    def fork(self, table: PageTable, num_tokens: int, names: list[bytes]) -> tuple[PageTable, list[PageCopy]] | None:
        """A second table over the same `num_tokens`; the page both would write to is copied. None: no page for it."""
        shared = num_tokens // self.page_size  # whole pages: nobody writes there again
        partial = num_tokens % self.page_size != 0
        if partial and any(pool.num_available < 1 for pool in self.pools):
            return None
        child = PageTable(
            pages=[pages[:shared] for pages in table.pages],
            names=names,
            num_published=min(table.num_published, shared),
            first_held=[min(first, shared) for first in table.first_held],
            reserved=[0] * len(self.groups),
        )
        copies = []
        for group, pool in enumerate(self.pools):
            for page in child.pages[group][child.first_held[group] :]:
                pool.hold(page)
            if partial:
                target = self._take(group)
                copies.append(PageCopy(group, table.pages[group][shared], target))
                child.pages[group].append(target)
        self._open[id(child)] = child
        return child, copies

    def publish(self, table: PageTable, num_tokens: int) -> list[TableEdit]:
        """Offer the full pages among the first `num_tokens` to others.

        Where an equal page is in the tree already, the table adopts that one and gives its own back. Forks that share
        it must follow before anything else happens: an idle page is taken, and none comes back until the last has.
        """
        edits: list[TableEdit] = []
        if not self.enable_prefix_caching:
            return edits
        until = min(num_tokens // self.page_size, len(table.names))
        while table.num_published < until:
            index = table.num_published
            name = table.names[index]
            node = self.tree.get(name)
            if node is None:
                parent = self.tree.get(table.names[index - 1]) if index else None
                self.tree.insert(name, parent, [pages[index] for pages in table.pages])
            else:
                edits += self._adopt(table, index, node)
            table.num_published += 1
        return edits

    def drop_behind(self, table: PageTable, num_tokens: int) -> None:
        """Give back the pages of window groups that no token after the first `num_tokens` can see."""
        for group, spec in enumerate(self.groups):
            if not spec.window:
                continue
            keep_from = spec.first_seen(num_tokens) // self.page_size
            for index in range(table.first_held[group], min(keep_from, len(table.pages[group]))):
                self._release(group, table.pages[group][index])
                table.pages[group][index] = NO_PAGE
                table.first_held[group] = index + 1
            if table.promised:
                self._renew_promise(table, group)

    def reserve(self, table: PageTable, most_pages: Sequence[int]) -> bool:
        """Promise the table all the pages it can ever need, or change nothing and say no."""
        missing = []
        for group, pool in enumerate(self.pools):
            held = len(table.pages[group]) - table.first_held[group]
            missing.append(max(0, most_pages[group] - held))
            if missing[group] > pool.num_available:
                return False
        for group, count in enumerate(missing):
            self._promise(table, group, count)
        table.promised = list(most_pages)
        return True

    def close_table(self, table: PageTable) -> None:
        """Let go of everything; what was published stays in the cache until the room is needed."""
        for group in range(len(self.groups)):
            self._promise(table, group, -table.reserved[group])
            for index in range(len(table.pages[group]) - 1, table.first_held[group] - 1, -1):
                self._release(group, table.pages[group][index])
            table.pages[group] = []
            table.first_held[group] = 0
        del self._open[id(table)]

    # -- inside ----------------------------------------------------------------------------------------------------

    def _take(self, group: int) -> int:
        pool = self.pools[group]
        if not pool.free:
            evicted = self.tree.evict(group)
            assert evicted, "a page was promised but none can be had"
        return pool.take()

    def _promise(self, table: PageTable, group: int, count: int) -> None:
        table.reserved[group] += count
        self.pools[group].num_reserved += count

    def _renew_promise(self, table: PageTable, group: int) -> None:
        """The window moved on and will want as many pages again as it gave back."""
        held = len(table.pages[group]) - table.first_held[group]
        missing = table.promised[group] - held - table.reserved[group]
        self._promise(table, group, max(0, min(missing, self.pools[group].num_available)))

    def _release(self, group: int, page: int) -> None:
        if self.pools[group].release(page):
            self.tree.became_idle(group, page, self.clock)

    def _needed(self, path: Sequence[Node | None], group: int) -> Sequence[Node | None]:
        """The nodes of a matched path whose pages a group still looks at."""
        return path[self.groups[group].first_seen(len(path) * self.page_size) // self.page_size :]

    def _usable_length(self, path: Sequence[Node | None]) -> int:
        """The longest prefix of the path for which every group has the pages it needs; one pass from the left."""
        if not self.has_windows:
            return len(path)  # a full group gives up a page only together with its node
        usable = 0
        unbroken = [0] * len(self.groups)  # by group: pages present in a row, up to the one looked at
        for length, node in enumerate(path, start=1):
            fits = True
            for group, spec in enumerate(self.groups):
                present = node is not None and node.pages[group] != NO_PAGE
                unbroken[group] = unbroken[group] + 1 if present else 0
                first = spec.first_seen(length * self.page_size) // self.page_size
                fits = fits and unbroken[group] >= length - first
            if fits:
                usable = length
        return usable

    def _adopt(self, table: PageTable, index: int, node: Node) -> list[TableEdit]:
        edits = []
        for group, pool in enumerate(self.pools):
            own = table.pages[group][index]
            theirs = node.pages[group]
            if own in (NO_PAGE, theirs):
                continue
            if theirs == NO_PAGE:
                self.tree.attach(node, group, own)
                continue
            pool.hold(theirs)
            table.pages[group][index] = theirs
            self._release(group, own)
            edits.append(TableEdit(group, index, theirs))
        return edits

    # -- state and checks --------------------------------------------------------------------------------------------

    def state(self) -> CacheState:
        nodes = sorted(self.tree, key=lambda node: (node.depth, node.name))
        return CacheState(
            free=tuple(tuple(pool.free) for pool in self.pools),
            nodes=tuple(
                NodeState(n.name, n.parent.name if n.parent else b"", tuple(n.pages), tuple(n.last_used)) for n in nodes
            ),
        )

    def restore(self, state: CacheState, tables: Iterable[PageTable]) -> None:
        """Rebuild an empty manager from a state and the page tables that were open in it."""
        for pool, free in zip(self.pools, state.free, strict=True):
            pool.free = list(free)
        for table in tables:
            self._open[id(table)] = table
            for group, pool in enumerate(self.pools):
                pool.num_reserved += table.reserved[group]
                for page in table.pages[group][table.first_held[group] :]:
                    pool.refs[page] += 1
        for saved in state.nodes:
            node = self.tree.insert(saved.name, self.tree.get(saved.parent), list(saved.pages))
            node.last_used = list(saved.last_used)
            for group, page in enumerate(saved.pages):
                if page != NO_PAGE and not self.pools[group].refs[page]:
                    self.pools[group].num_idle += 1
        self.tree.offer_all()

    def check_integrity(self) -> None:
        for group, pool in enumerate(self.pools):
            refs = [0] * pool.num_pages
            for table in self._open.values():
                for index, page in enumerate(table.pages[group]):
                    assert (page == NO_PAGE) == (index < table.first_held[group]), "a gap in a page table"
                    if page != NO_PAGE:
                        refs[page] += 1
            pool.check_integrity(refs)
            promised = sum(table.reserved[group] for table in self._open.values())
            assert promised == pool.num_reserved, "promises do not add up"
        for table in self._open.values():
            lengths = {len(pages) for pages in table.pages}
            assert len(lengths) == 1, "the groups of one table differ in length"
        self.tree.check_integrity()
