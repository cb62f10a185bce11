from __future__ import annotations

from pathlib import Path

from pagoda.engine.landmarks import forget, has_reached, reach


def test_what_one_engine_reached_is_not_said_of_the_next(tmp_path: Path):
    socket = tmp_path / "engine"
    assert not has_reached(socket, "connected")
    reach(socket, "connected")
    assert has_reached(socket, "connected") and not has_reached(socket, "ready")
    reach(socket, "ready")
    forget(socket)
    assert not has_reached(socket, "connected") and not has_reached(socket, "ready")
    forget(socket)


def test_a_folder_that_is_gone_troubles_nobody(tmp_path: Path):
    reach(tmp_path / "gone" / "engine", "ready")
    assert not has_reached(tmp_path / "gone" / "engine", "ready")
