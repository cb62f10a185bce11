"""One server with the default model for all clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.running import RunningServer

KEY = "a-key-for-clients"


@pytest.fixture(scope="session")
def real_server(smollm2_path: Path) -> Iterator[RunningServer]:
    options = ("--served-model-name", "smollm2")
    with RunningServer(smollm2_path, *options, environment={"PAGODA_API_KEY": KEY}) as running:
        running.wait_until_ready()
        yield running


@pytest.fixture(scope="session")
def base_url(real_server: RunningServer) -> str:
    return f"{real_server.url}/v1"
