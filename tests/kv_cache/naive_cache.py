"""The cache manager as one would first think of it: no counters, no heaps, every question answered by looking at all.

It predicts page numbers too, since those are part of what a replay must reproduce.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pagoda.core.cache import CacheGroup
from pagoda.kv_cache import NO_PAGE

Prefix = tuple[int, ...]
"""The contents of a page and of all before it: one letter stands for a page of tokens."""


@dataclass(eq=False)
class NaiveTable:
    letters: Prefix
    pages: list[list[int]]
    num_published: int
    reserved: list[int]
    promised: list[int] = field(default_factory=list)


@dataclass
class NaiveNode:
    parent: Prefix | None
    depth: int
    pages: list[int]
    last_used: list[int]


class NaiveCache:
    def __init__(self, groups: Sequence[CacheGroup], num_pages: int, page_size: int) -> None:
        self.groups = groups
        self.num_pages = num_pages
        self.page_size = page_size
        self.free = [list(range(num_pages))[::-1] for _ in groups]
        self.nodes: dict[Prefix, NaiveNode] = {}
        self.tables: list[NaiveTable] = []
        self.clock = 0

    # -- looking ---------------------------------------------------------------------------------------------------

    def all_groups(self) -> range:
        return range(len(self.groups))

    def is_held(self, group: int, page: int) -> bool:
        return any(page in table.pages[group] for table in self.tables)

    def available(self, group: int) -> int:
        held = {page for table in self.tables for page in table.pages[group]} - {NO_PAGE}
        return self.num_pages - len(held) - sum(table.reserved[group] for table in self.tables)

    def first_seen(self, group: int, num_tokens: int) -> int:
        """The first page that the token after `num_tokens` others can see."""
        window = self.groups[group].window
        first_token = num_tokens - window + 1 if window else 0
        return max(0, first_token) // self.page_size

    def match(self, letters: Prefix, most: int) -> list[list[int]]:
        for length in range(min(most, len(letters)), 0, -1):
            pages = [self.pages_of(group, letters, length) for group in self.all_groups()]
            if all(NO_PAGE not in held for held in pages):
                return [[NO_PAGE] * (length - len(held)) + held for held in pages]
        return [[] for _ in self.groups]

    def pages_of(self, group: int, letters: Prefix, length: int) -> list[int]:
        first = self.first_seen(group, length * self.page_size)
        nodes = [self.nodes.get(letters[: index + 1]) for index in range(first, length)]
        return [node.pages[group] if node else NO_PAGE for node in nodes]

    # -- doing -----------------------------------------------------------------------------------------------------

    def open(self, letters: Prefix, most: int) -> NaiveTable:
        pages = self.match(letters, most)
        table = NaiveTable(letters, pages, len(pages[0]), [0] * len(self.groups))
        self.tables.append(table)
        return table

    def grow(self, table: NaiveTable, num_tokens: int) -> bool:
        count = -(-num_tokens // self.page_size) - len(table.pages[0])
        if any(count > self.available(g) + table.reserved[g] for g in self.all_groups() if count > 0):
            return False
        for group in self.all_groups():
            for _ in range(count):
                table.reserved[group] = max(0, table.reserved[group] - 1)
                table.pages[group].append(self.take(group))
        return True

    def fork(self, table: NaiveTable, num_tokens: int, letters: Prefix) -> NaiveTable | None:
        shared, rest = divmod(num_tokens, self.page_size)
        if rest and any(self.available(group) < 1 for group in self.all_groups()):
            return None
        pages = [held[:shared] for held in table.pages]
        child = NaiveTable(letters, pages, min(table.num_published, shared), [0] * len(self.groups))
        self.tables.append(child)
        for group in self.all_groups():
            if rest:
                child.pages[group].append(self.take(group))
        return child

    def publish(self, table: NaiveTable, num_tokens: int) -> None:
        until = min(num_tokens // self.page_size, len(table.letters))
        for index in range(table.num_published, until):
            prefix = table.letters[: index + 1]
            node = self.nodes.get(prefix)
            if node is None:
                parent = prefix[:-1] if prefix[:-1] in self.nodes else None
                depth = self.nodes[parent].depth + 1 if parent is not None else 0
                own = [pages[index] for pages in table.pages]
                self.nodes[prefix] = NaiveNode(parent, depth, own, [0] * len(own))
            else:
                self.exchange(table, index, node)
            table.num_published = index + 1

    def exchange(self, table: NaiveTable, index: int, node: NaiveNode) -> None:
        for group in self.all_groups():
            own = table.pages[group][index]
            if own == NO_PAGE:
                continue
            if node.pages[group] == NO_PAGE:
                node.pages[group] = own
            elif node.pages[group] != own:
                table.pages[group][index] = node.pages[group]
                self.released(group, own)

    def drop_behind(self, table: NaiveTable, num_tokens: int) -> None:
        for group in self.all_groups():
            for index in range(min(self.first_seen(group, num_tokens), len(table.pages[group]))):
                page = table.pages[group][index]
                table.pages[group][index] = NO_PAGE
                if page != NO_PAGE:
                    self.released(group, page)
            if self.groups[group].window and table.promised:
                missing = table.promised[group] - self.num_held(table, group) - table.reserved[group]
                table.reserved[group] += max(0, min(missing, self.available(group)))

    def num_held(self, table: NaiveTable, group: int) -> int:
        return sum(page != NO_PAGE for page in table.pages[group])

    def reserve(self, table: NaiveTable, most: list[int]) -> bool:
        missing = [max(0, most[group] - self.num_held(table, group)) for group in self.all_groups()]
        if any(missing[group] > self.available(group) for group in self.all_groups()):
            return False
        table.reserved = [have + more for have, more in zip(table.reserved, missing, strict=True)]
        table.promised = list(most)
        return True

    def close(self, table: NaiveTable) -> None:
        for group in self.all_groups():
            while table.pages[group]:
                page = table.pages[group].pop()
                if page != NO_PAGE:
                    self.released(group, page)
        self.tables.remove(table)

    # -- pages -----------------------------------------------------------------------------------------------------

    def take(self, group: int) -> int:
        if not self.free[group]:
            assert self.evict(group), "the model found no page"
        return self.free[group].pop()

    def released(self, group: int, page: int) -> None:
        if self.is_held(group, page):
            return
        for node in self.nodes.values():
            if node.pages[group] == page:
                node.last_used[group] = self.clock
                return
        self.free[group].append(page)

    def evictable(self, group: int) -> Iterator[tuple[int, int, int, Prefix]]:
        parents = {node.parent for node in self.nodes.values()}
        for prefix, node in self.nodes.items():
            page = node.pages[group]
            is_stuck = self.groups[group].kind == "full" and prefix in parents
            if page != NO_PAGE and not is_stuck and not self.is_held(group, page):
                yield node.last_used[group], -node.depth, page, prefix

    def evict(self, group: int) -> bool:
        oldest = min(self.evictable(group), default=None)
        if oldest is None:
            return False
        prefix: Prefix | None = oldest[3]
        assert prefix is not None
        node = self.nodes[prefix]
        leaving = self.all_groups() if self.groups[group].kind == "full" else [group]
        for each in leaving:
            if node.pages[each] != NO_PAGE:
                self.free[each].append(node.pages[each])
                node.pages[each] = NO_PAGE
        while prefix is not None and self.is_empty_leaf(prefix):
            prefix = self.nodes.pop(prefix).parent
        return True

    def is_empty_leaf(self, prefix: Prefix) -> bool:
        has_pages = any(page != NO_PAGE for page in self.nodes[prefix].pages)
        return not has_pages and all(node.parent != prefix for node in self.nodes.values())
