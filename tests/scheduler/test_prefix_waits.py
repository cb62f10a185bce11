from __future__ import annotations

from pagoda.scheduler.prefix_waits import Claim, PrefixWaits

NAMES = [b"a", b"b", b"c", b"d"]


def test_a_claim_reaches_as_far_as_one_owner_goes() -> None:
    waits = PrefixWaits()
    waits.claim(1, NAMES[:3])
    assert waits.find(NAMES, 0, 4) == Claim(1, b"c", 2)
    assert waits.find(NAMES, 1, 2) == Claim(1, b"b", 1)
    assert waits.find(NAMES, 3, 4) is None
    assert waits.find(NAMES, 2, 2) is None


def test_the_first_to_claim_a_page_owns_it() -> None:
    waits = PrefixWaits()
    waits.claim(1, NAMES[:2])
    waits.claim(2, NAMES)
    assert waits.find(NAMES, 0, 4) == Claim(1, b"b", 1)
    assert waits.find(NAMES, 2, 4) == Claim(2, b"d", 3)
    assert waits.release(2) == []
    assert waits.find(NAMES, 0, 4) == Claim(1, b"b", 1)
    assert waits.find(NAMES, 2, 4) is None


def test_waiters_go_when_the_last_page_they_need_is_published() -> None:
    waits = PrefixWaits()
    waits.claim(1, NAMES)
    waits.wait(7, Claim(1, b"b", 1))
    waits.wait(8, Claim(1, b"d", 3))
    assert waits.published(1, [b"a"]) == []
    assert waits.published(1, [b"b", b"c"]) == [7]
    assert len(waits) == 1
    assert waits.published(1, [b"d"]) == [8]
    assert len(waits) == 0
    assert waits.find(NAMES, 0, 4) is None


def test_all_go_when_the_owner_stops() -> None:
    waits = PrefixWaits()
    waits.claim(1, NAMES)
    waits.wait(7, Claim(1, b"b", 1))
    waits.wait(8, Claim(1, b"d", 3))
    waits.discard(8)
    assert waits.release(1) == [7]
    assert waits.release(1) == []
    assert len(waits) == 0
    waits.claim(2, NAMES)
    assert waits.find(NAMES, 0, 1) == Claim(2, b"a", 0)


def test_a_page_that_another_claimed_since_is_not_taken_from_it() -> None:
    waits = PrefixWaits()
    waits.claim(1, [b"a"])
    waits.published(1, [b"a"])
    waits.claim(2, [b"a"])  # it was evicted and is computed again
    waits.release(1)
    assert waits.find(NAMES, 0, 1) == Claim(2, b"a", 0)


def test_a_restored_one_is_the_same() -> None:
    waits, copy = PrefixWaits(), PrefixWaits()
    waits.claim(1, NAMES[:2])
    waits.claim(2, NAMES)
    waits.wait(7, Claim(1, b"b", 1))
    waits.wait(8, Claim(2, b"d", 3))
    copy.restore(waits.claims(), waits.waits())
    assert (copy.claims(), copy.waits()) == (waits.claims(), waits.waits())
    assert copy.find(NAMES, 2, 4) == Claim(2, b"d", 3)
    assert copy.published(1, NAMES[:2]) == [7]
    assert copy.release(2) == [8]


def test_a_claim_ends_only_when_its_owner_publishes() -> None:
    waits = PrefixWaits()
    waits.claim(1, NAMES)
    waits.wait(7, Claim(1, b"a", 0))
    assert waits.published(2, [b"a"]) == []  # somebody who did not look whether others were at it
    assert waits.find(NAMES, 0, 1) == Claim(1, b"a", 0)
    assert waits.published(1, [b"a"]) == [7]
