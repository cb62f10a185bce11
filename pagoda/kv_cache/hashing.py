"""Names for page contents: a SHA-256 chain, so that one hash stands for a page and for everything before it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

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
    tokens = np.ascontiguousarray(token_ids, dtype="<i4")
    hashes = []
    for start in range(0, len(tokens) - page_size + 1, page_size):
        parent = hashlib.sha256(parent + tokens[start : start + page_size].tobytes()).digest()
        hashes.append(parent)
    return hashes
