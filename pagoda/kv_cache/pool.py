"""The pages of one cache group: which are free, and how many page tables hold each of the others."""

from __future__ import annotations

NO_PAGE = -1


class PagePool:
    """Hands out page numbers. A page is free, held (by `refs` page tables), cached (by the prefix tree), or both."""

    __slots__ = ("cached", "free", "num_idle", "num_pages", "num_reserved", "refs")

    def __init__(self, num_pages: int) -> None:
        self.num_pages = num_pages
        self.free = list(range(num_pages - 1, -1, -1))  # the last one goes first, so page 0 goes first
        self.refs = [0] * num_pages
        self.cached = bytearray(num_pages)
        self.num_idle = 0  # cached and held by nobody: given up on demand
        self.num_reserved = 0  # promised to requests that may no longer be pushed back

    @property
    def num_available(self) -> int:
        """Pages that can be had without taking any from a request or from a promise."""
        return len(self.free) + self.num_idle - self.num_reserved

    @property
    def num_used(self) -> int:
        """Pages held by at least one page table."""
        return self.num_pages - len(self.free) - self.num_idle

    def take(self) -> int:
        page = self.free.pop()
        self.refs[page] = 1
        return page

    def hold(self, page: int) -> None:
        if self.refs[page] == 0:
            self.num_idle -= 1  # only a cached page can be held anew
        self.refs[page] += 1

    def release(self, page: int) -> bool:
        """Let go once; True when the page is now idle in the cache."""
        self.refs[page] -= 1
        if self.refs[page]:
            return False
        if self.cached[page]:
            self.num_idle += 1
            return True
        self.free.append(page)
        return False

    def cache(self, page: int) -> None:
        """The prefix tree takes note of a page that somebody holds."""
        self.cached[page] = 1

    def uncache(self, page: int) -> None:
        """The prefix tree forgets an idle page, which is then free."""
        self.cached[page] = 0
        self.num_idle -= 1
        self.free.append(page)

    def check_integrity(self, expected_refs: list[int]) -> None:
        """`expected_refs[page]` is how many page tables really name the page."""
        assert self.refs == expected_refs, "reference counts differ from the page tables"
        free = set(self.free)
        assert len(free) == len(self.free), "a page is in the free list twice"
        idle = 0
        for page in range(self.num_pages):
            in_use = self.refs[page] > 0 or bool(self.cached[page])
            assert in_use != (page in free), f"page {page} is both free and in use, or neither"
            idle += self.refs[page] == 0 and bool(self.cached[page])
        assert idle == self.num_idle, "the count of idle pages is off"
        assert 0 <= self.num_reserved <= len(self.free) + self.num_idle, "more pages are promised than can be had"
