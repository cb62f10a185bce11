"""One server with a tiny random model for all tests that do not hurt it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.engine.conftest import tiny_folder, tiny_reference  # noqa: F401 - fixtures
from tests.server.paced import PacedServer

OPTIONS = ("--num-threads", "1", "--max-num-seqs", "8", "--max-num-batched-tokens", "64", "--served-model-name", "tiny")


@pytest.fixture(scope="session")
def server(tiny_folder: Path) -> Iterator[PacedServer]:  # noqa: F811
    with PacedServer(tiny_folder, *OPTIONS) as running:
        running.wait_until_ready()
        yield running
    assert running.wait() == 0


@pytest.fixture
def client(server: PacedServer) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client
