from __future__ import annotations

import hashlib
import itertools
import struct

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pagoda.kv_cache.hashing import extend_chain, root_hash

TOKENS = st.lists(st.integers(0, 2**31 - 1), max_size=40)


def by_hand(parent: bytes, tokens: list[int], page_size: int) -> list[bytes]:
    names = []
    for first in range(0, len(tokens) // page_size * page_size, page_size):
        page = struct.pack(f"<{page_size}i", *tokens[first : first + page_size])
        parent = hashlib.sha256(parent + page).digest()
        names.append(parent)
    return names


@given(TOKENS, st.integers(1, 9))
def test_the_chain_is_sha256_over_parent_and_page(tokens: list[int], page_size: int) -> None:
    root = root_hash("model")
    assert extend_chain(root, tokens, page_size) == by_hand(root, tokens, page_size)
    assert extend_chain(root, np.array(tokens, np.int32), page_size) == by_hand(root, tokens, page_size)


def test_the_root_is_sha256_over_parts_with_their_lengths() -> None:
    parts = (b"model", b"adapter", b"salt", b"\x01\x02")
    expected = hashlib.sha256(b"".join(struct.pack("<Q", len(part)) + part for part in parts)).digest()
    assert root_hash("model", "adapter", "salt", [b"\x01\x02"]) == expected


def test_requests_that_differ_in_any_part_have_different_roots() -> None:
    roots = [
        root_hash("m"),
        root_hash("n"),
        root_hash("m", "a"),
        root_hash("m", "", "a"),
        root_hash("m", "", "", [b"a"]),
        root_hash("ma"),
        root_hash("m", "", "", [b"", b"a"]),
        root_hash("m", "", "", [b"a", b""]),
        root_hash("m", "", "", [b""]),
    ]
    assert len(set(roots)) == len(roots)
    pages = [tuple(extend_chain(root, range(8), 4)) for root in roots]
    assert not any(set(a) & set(b) for a, b in itertools.combinations(pages, 2))


@given(TOKENS, TOKENS)
def test_equal_names_mean_equal_prefixes(ours: list[int], theirs: list[int]) -> None:
    root = root_hash("m")
    for page, (a, b) in enumerate(zip(extend_chain(root, ours, 4), extend_chain(root, theirs, 4), strict=False), 1):
        assert (a == b) == (ours[: 4 * page] == theirs[: 4 * page])


@given(TOKENS, st.integers(0, 10))
def test_a_chain_can_be_continued_from_any_page(tokens: list[int], page: int) -> None:
    whole = extend_chain(root_hash("m"), tokens, 4)
    page = min(page, len(whole))
    parent = whole[page - 1] if page else root_hash("m")
    assert whole[:page] + extend_chain(parent, tokens[4 * page :], 4) == whole


def test_an_unfinished_page_has_no_name() -> None:
    assert extend_chain(root_hash("m"), [1, 2, 3], 4) == []
    assert len(extend_chain(root_hash("m"), list(range(7)), 4)) == 1
