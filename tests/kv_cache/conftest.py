"""After every test here the books of all living cache managers must balance."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pagoda.kv_cache import live_managers


@pytest.fixture(autouse=True)
def balanced_books() -> Iterator[None]:
    yield
    for manager in live_managers():
        manager.check_integrity()
