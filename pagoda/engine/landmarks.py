"""How far an engine process has come, for its supervisor: empty files beside the socket that it connects to."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Literal

Landmark = Literal["connected", "ready"]
LANDMARKS: tuple[Landmark, ...] = ("connected", "ready")


def reach(socket: Path, landmark: Landmark) -> None:
    with suppress(OSError):  # the folder is gone, and with it whoever would look
        _file(socket, landmark).touch()


def has_reached(socket: Path, landmark: Landmark) -> bool:
    return _file(socket, landmark).exists()


def forget(socket: Path) -> None:
    """Before the next engine starts."""
    for landmark in LANDMARKS:
        _file(socket, landmark).unlink(missing_ok=True)


def _file(socket: Path, landmark: Landmark) -> Path:
    return socket.with_name(f"{socket.name}.{landmark}")
