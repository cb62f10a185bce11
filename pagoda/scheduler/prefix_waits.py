"""A prefix that one sequence is computing is not computed again: others that need it wait for its pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Claim(NamedTuple):
    """Somebody is computing the pages up to the one called `name`, which is number `page` of the prefix."""

    owner: int
    name: bytes
    page: int


class PrefixWaits:
    """Which pages are being computed by whom, and who waits for them. Sequences go by their numbers."""

    def __init__(self) -> None:
        self._owner_of: dict[bytes, int] = {}
        self._claims: dict[int, list[bytes]] = {}
        self._waiters: dict[int, dict[int, bytes]] = {}  # owner -> waiter -> the last page it needs
        self._waits_on: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._waits_on)

    @property
    def has_claims(self) -> bool:
        return bool(self._owner_of)

    def claim(self, owner: int, names: Iterable[bytes]) -> None:
        mine = [name for name in names if self._owner_of.setdefault(name, owner) == owner]
        self._claims[owner] = mine

    def find(self, names: Sequence[bytes], start: int, stop: int) -> Claim | None:
        """Who computes page `start`, and how far along `names` that sequence will go."""
        owner = self._owner_of.get(names[start]) if start < stop else None
        if owner is None:
            return None
        index = start
        while index + 1 < stop and self._owner_of.get(names[index + 1]) == owner:
            index += 1
        return Claim(owner, names[index], index)

    def wait(self, waiter: int, claim: Claim) -> None:
        self._waiters.setdefault(claim.owner, {})[waiter] = claim.name
        self._waits_on[waiter] = claim.owner

    def published(self, owner: int, names: Iterable[bytes]) -> list[int]:
        """Pages are in the tree now; the waiters that have all they waited for."""
        done = set()
        for name in names:
            if self._owner_of.get(name) == owner:
                del self._owner_of[name]
                done.add(name)
        waiters = self._waiters.get(owner)
        if not waiters:
            return []
        ready = [waiter for waiter, name in waiters.items() if name in done]
        for waiter in ready:
            self.discard(waiter)
        return ready

    def release(self, owner: int) -> list[int]:
        """The owner stopped before it was through: everybody who waited for it is free to go."""
        for name in self._claims.pop(owner, ()):
            if self._owner_of.get(name) == owner:
                del self._owner_of[name]
        waiters = list(self._waiters.pop(owner, ()))
        for waiter in waiters:
            del self._waits_on[waiter]
        return waiters

    def discard(self, waiter: int) -> None:
        owner = self._waits_on.pop(waiter)
        waiters = self._waiters[owner]
        del waiters[waiter]
        if not waiters:
            del self._waiters[owner]

    def waits(self) -> list[tuple[int, int, bytes]]:
        """(waiter, owner, name) for a snapshot."""
        return [(waiter, owner, name) for owner, names in self._waiters.items() for waiter, name in names.items()]

    def claims(self) -> list[tuple[int, bytes]]:
        """(owner, name) for a snapshot."""
        return [(owner, name) for name, owner in self._owner_of.items()]

    def restore(self, claims: Iterable[tuple[int, bytes]], waits: Iterable[tuple[int, int, bytes]]) -> None:
        for owner, name in claims:
            self._owner_of[name] = owner
            self._claims.setdefault(owner, []).append(name)
        for waiter, owner, name in waits:
            self.wait(waiter, Claim(owner, name, 0))
