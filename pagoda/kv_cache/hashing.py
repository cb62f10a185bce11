"""Names for page contents: a SHA-256 chain, so that one hash stands for a page and for everything before it."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from functools import cache

import numpy as np
import numpy.typing as npt


def root_hash(model: str, adapter: str = "", salt: str = "", media_digests: Sequence[bytes] = ()) -> bytes:
    """The chain's first link. Requests that differ in any of these never share a page."""
    digest = hashlib.sha256()
    for part in (model.encode(), adapter.encode(), salt.encode(), *media_digests):
        digest.update(len(part).to_bytes(8, "little"))  # a length before each part, so that parts cannot run together
        digest.update(part)
    return digest.digest()


def extend_chain(parent: bytes, token_ids: Sequence[int] | npt.NDArray[np.int32], page_size: int) -> list[bytes]:
    """Hashes of the full pages in `token_ids`, which continue the page named `parent`."""
    tokens = token_ids.tolist() if isinstance(token_ids, np.ndarray) else token_ids
    pack = _page_format(page_size).pack
    hashes = []
    for start in range(0, len(tokens) - page_size + 1, page_size):
        parent = hashlib.sha256(parent + pack(*tokens[start : start + page_size])).digest()
        hashes.append(parent)
    return hashes


@cache
def _page_format(page_size: int) -> struct.Struct:
    return struct.Struct(f"<{page_size}i")
