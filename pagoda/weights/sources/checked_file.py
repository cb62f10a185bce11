"""Writing and reading files whose bytes are known beforehand: hashed in passing, made durable, named last."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from pagoda.core.errors import PullError
from pagoda.weights.manifest import StoredFile

CHUNK_BYTES = 1 << 20


def write_checked(path: Path, chunks: Iterable[bytes], expected: StoredFile) -> None:
    """Write to a temporary name in the same folder and rename when size and sha256 are right."""
    digest = hashlib.sha256()
    num_bytes = 0
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as out:
            for chunk in chunks:
                digest.update(chunk)
                num_bytes += len(chunk)
                out.write(chunk)
            out.flush()
            os.fsync(out.fileno())
        if (num_bytes, digest.hexdigest()) != (expected.num_bytes, expected.sha256):
            raise PullError(
                f"{expected.name}: expected sha256 {expected.sha256} ({expected.num_bytes} bytes), "
                f"got {digest.hexdigest()} ({num_bytes} bytes)"
            )
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def read_chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


def hash_file(path: Path, on_bytes: Callable[[int], None] = lambda num_done: None) -> str:
    digest = hashlib.sha256()
    num_done = 0
    for chunk in read_chunks(path):
        digest.update(chunk)
        num_done += len(chunk)
        on_bytes(num_done)
    return digest.hexdigest()


def is_intact(path: Path, expected: StoredFile) -> bool:
    if not path.is_file() or path.is_symlink() or path.stat().st_size != expected.num_bytes:
        return False
    return hash_file(path) == expected.sha256


def sync_file(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Make renames inside the folder survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def require_space(folder: Path, num_bytes: int) -> None:
    num_free = shutil.disk_usage(folder).free
    if num_bytes > num_free:
        raise PullError(f"{num_bytes / 1e6:.0f} MB are needed in {folder}, and {num_free / 1e6:.0f} MB are free")


def remove_all_but(folder: Path, names: set[str]) -> None:
    for entry in folder.iterdir():
        if entry.name in names:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)
