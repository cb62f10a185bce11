from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from pagoda.core.config import EngineConfig
from pagoda.engine.exit_codes import EXIT_NOT_BUILT

PATIENCE = 60.0


def start(place: Path, model: str) -> subprocess.Popen[str]:
    config = EngineConfig(model=model, max_num_seqs=2, max_num_batched_tokens=64, num_threads=1, num_pages=32)
    command = [sys.executable, "-m", "pagoda.engine.process", str(place), msgspec.json.encode(config).decode()]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "engine"


def test_an_engine_ends_in_silence_where_nobody_listens_any_more(place: Path, tiny_folder: Path) -> None:
    """A supervisor takes 1 for a model that is wrong, and starts no other engine."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place))
        server.listen()
        engine = start(place, str(tiny_folder))
        server.accept()[0].close()  # while it loads
        _, said = engine.communicate(timeout=PATIENCE)
    assert engine.returncode == 0
    assert "Traceback" not in said


def test_what_cannot_be_built_is_said_by_the_exit_code_even_to_nobody(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place))
        server.listen()
        engine = start(place, str(place.parent / "missing"))
        server.accept()[0].close()
        _, said = engine.communicate(timeout=PATIENCE)
    assert engine.returncode == EXIT_NOT_BUILT
    assert "Traceback" not in said
