"""The folder in which the processes of one server meet. Nobody else can enter it, and what a supervisor that was killed
leaves behind, the next one removes."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

PREFIX = "pagoda-serve-"
_NAME = re.compile(PREFIX + "[a-z0-9_]{8}")  # as mkdtemp completes it
LOCK = "alive"
"""Its lock ends with the process that holds it, however that process ends."""


class PrivateFolder:
    def __init__(self) -> None:
        remove_leftovers(Path(tempfile.gettempdir()))
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))  # mkdtemp lets nobody else in
        self._lock = _make_lock(self.path)

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _make_lock(folder: Path) -> int:
    """It gets its name once it is held: whoever finds it free may be sure that its holder is gone."""
    nameless = folder / f"{LOCK}.new"
    descriptor = os.open(nameless, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    nameless.rename(folder / LOCK)
    return descriptor


def remove_leftovers(place: Path) -> None:
    """Folders of supervisors of this user that are no more. Anything else that goes by such a name is left alone."""
    with suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            if _NAME.fullmatch(entry.name):
                with suppress(OSError):
                    _remove_if_left(Path(entry.path))


def _remove_if_left(folder: Path) -> None:
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        return
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)
