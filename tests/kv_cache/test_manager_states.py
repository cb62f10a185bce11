"""Any life of a cache manager, step by step against a naive one."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pagoda.core.cache import CacheGroup
from pagoda.kv_cache import KVCacheManager, PageTable
from tests.kv_cache.naive_cache import NaiveCache, NaiveTable, Prefix

FULL = CacheGroup("full", (0,), 1, 8)
WINDOW = CacheGroup("window", (1,), 1, 8, window=5)
GROUPS = [(FULL,), (FULL, WINDOW), (WINDOW,), (WINDOW, FULL)]
SIZE = 3
LETTERS = st.lists(st.integers(0, 1), max_size=6).map(tuple)


def chain(letters: Prefix) -> list[bytes]:
    return [bytes(letters[: index + 1]) for index in range(len(letters))]


class CacheLife(RuleBasedStateMachine):
    """Pairs of a real and a naive table. `settled` tokens of a table never change again; siblings share a family."""

    def __init__(self) -> None:
        super().__init__()
        self.pairs: list[tuple[PageTable, NaiveTable]] = []
        self.settled: dict[int, int] = {}
        self.family: dict[int, int] = {}

    @initialize(groups=st.sampled_from(GROUPS), num_pages=st.integers(4, 14))
    def begin(self, groups: tuple[CacheGroup, ...], num_pages: int) -> None:
        self.real = KVCacheManager(groups, [num_pages] * len(groups), SIZE)
        self.naive = NaiveCache(groups, num_pages, SIZE)

    def pick(self, data: st.DataObject) -> tuple[PageTable, NaiveTable]:
        return self.pairs[data.draw(st.integers(0, len(self.pairs) - 1), label="table")]

    def capacity(self, table: PageTable) -> int:
        return len(table.pages[0]) * SIZE

    @rule(letters=LETTERS, most=st.integers(0, 6))
    def open(self, letters: Prefix, most: int) -> None:
        names = chain(letters)
        match = self.real.match(names, most)
        room = all(idle <= pool.num_available for idle, pool in zip(match.num_idle, self.real.pools, strict=True))
        if not room:
            return  # the caller's part: pages on promise are not to be taken
        real, naive = self.real.open_table(match, names), self.naive.open(letters, most)
        self.add(real, naive, family=id(real), settled=match.num_pages * SIZE)

    def add(self, real: PageTable, naive: NaiveTable, family: int, settled: int) -> None:
        self.pairs.append((real, naive))
        self.settled[id(real)] = settled
        self.family[id(real)] = family

    @precondition(lambda self: self.pairs)
    @rule(data=st.data(), more=st.integers(1, 9))
    def grow(self, data: st.DataObject, more: int) -> None:
        real, naive = self.pick(data)
        num_tokens = self.capacity(real) + more
        before = [list(pages) for pages in real.pages]
        added = self.real.grow(real, num_tokens)
        assert (added is not None) == self.naive.grow(naive, num_tokens)
        if added is not None:
            assert real.pages == [old + new for old, new in zip(before, added, strict=True)]

    @precondition(lambda self: self.pairs)
    @rule(data=st.data(), tail=LETTERS)
    def fork(self, data: st.DataObject, tail: Prefix) -> None:
        real, naive = self.pick(data)
        num_tokens = data.draw(st.integers(self.settled[id(real)], self.capacity(real)), label="tokens")
        letters = naive.letters[: num_tokens // SIZE]  # both know the names of the pages that they share
        if len(letters) == num_tokens // SIZE:
            letters += tail
        sources = [pages[num_tokens // SIZE : num_tokens // SIZE + 1] for pages in real.pages]
        forked = self.real.fork(real, num_tokens, chain(letters))
        twin = self.naive.fork(naive, num_tokens, letters)
        assert (forked is None) == (twin is None)
        if forked is None or twin is None:
            return
        child, copies = forked
        if num_tokens % SIZE:
            assert [[copy.source] for copy in copies] == sources
            assert [copy.target for copy in copies] == [pages[-1] for pages in child.pages]
        else:
            assert not copies
        self.settled[id(real)] = num_tokens  # all that a fork shares is computed, for whoever is forked as well
        self.add(child, twin, self.family[id(real)], settled=num_tokens)

    @precondition(lambda self: self.pairs)
    @rule(data=st.data())
    def publish(self, data: st.DataObject) -> None:
        real, naive = self.pick(data)
        num_tokens = data.draw(st.integers(self.settled[id(real)], self.capacity(real)), label="tokens")
        self.settled[id(real)] = num_tokens
        self.publish_one(real, naive, num_tokens)
        for other, twin in self.pairs:  # siblings follow, as the scheduler has them do
            if self.family[id(other)] == self.family[id(real)] and other.num_published < real.num_published:
                self.publish_one(other, twin, min(real.num_published * SIZE, self.settled[id(other)]))

    def publish_one(self, real: PageTable, naive: NaiveTable, num_tokens: int) -> None:
        before = [list(pages) for pages in real.pages]
        for edit in self.real.publish(real, num_tokens):
            before[edit.group][edit.entry] = edit.page
        assert real.pages == before, "an edit was kept from the executor"
        self.naive.publish(naive, num_tokens)

    @precondition(lambda self: self.pairs)
    @rule(data=st.data())
    def drop_behind(self, data: st.DataObject) -> None:
        real, naive = self.pick(data)
        self.real.drop_behind(real, self.settled[id(real)])
        self.naive.drop_behind(naive, self.settled[id(real)])

    @precondition(lambda self: any(not real.promised for real, _ in self.pairs))
    @rule(data=st.data(), most=st.integers(0, 6))
    def reserve(self, data: st.DataObject, most: int) -> None:
        real, naive = self.pick(data)
        if not real.promised:
            wanted = [most] * len(self.real.groups)
            assert self.real.reserve(real, wanted) == self.naive.reserve(naive, wanted)

    @precondition(lambda self: self.pairs)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        real, naive = self.pick(data)
        self.pairs.remove((real, naive))
        self.real.close_table(real)
        self.naive.close(naive)

    @rule()
    def tick(self) -> None:
        self.real.clock += 1
        self.naive.clock += 1

    @rule(group=st.integers(0, 1))
    def evict(self, group: int) -> None:
        group %= len(self.real.groups)
        assert self.real.tree.evict(group) == self.naive.evict(group)

    @rule(letters=LETTERS, most=st.integers(0, 6))
    def match(self, letters: Prefix, most: int) -> None:
        match = self.real.match(chain(letters), most)
        expected = self.naive.match(letters, most)
        assert match.num_pages == len(expected[0])
        for group, pages in enumerate(expected):
            held = [page for page in pages if page >= 0]
            assert match.pages[group] == held
            assert match.num_idle[group] == sum(not self.naive.is_held(group, page) for page in held)

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "real"):
            return
        self.real.check_integrity()
        for group, pool in enumerate(self.real.pools):
            assert pool.num_available == self.naive.available(group)
            assert pool.free == self.naive.free[group]
        for real, naive in self.pairs:
            assert (real.pages, real.num_published, real.reserved) == (naive.pages, naive.num_published, naive.reserved)
        nodes = {node.name: (node.pages, node.last_used) for node in self.real.tree}
        assert nodes == {bytes(prefix): (node.pages, node.last_used) for prefix, node in self.naive.nodes.items()}

    def teardown(self) -> None:
        for real, _ in self.pairs:
            self.real.close_table(real)


TestCacheLife = CacheLife.TestCase
TestCacheLife.settings = settings(max_examples=60, stateful_step_count=40)


@pytest.mark.slow
class TestLongCacheLife(CacheLife.TestCase):
    settings = settings(max_examples=1500, stateful_step_count=80)
