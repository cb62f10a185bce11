"""What a container or a service may still take, where Linux keeps it to less than the machine has."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")


def cgroup_available_bytes(root: Path = ROOT, own: Path = OWN) -> int | None:
    """The least that any of the groups this process is in has left; None where none has a limit.

    Pages of files that a group merely caches count as free.
    """
    try:
        [path] = [line.partition("::")[2] for line in own.read_text().splitlines() if line.startswith("0::")]
    except (OSError, ValueError):
        return None
    folder = root / path.strip("/")
    folders = [folder, *folder.parents]
    found = [left for each in folders[: folders.index(root) + 1] if (left := _left_in(each)) is not None]
    return min(found, default=None)


def _left_in(folder: Path) -> int | None:
    with suppress(OSError, ValueError):
        limit = int((folder / "memory.max").read_text())  # `max` where there is none
        used = int((folder / "memory.current").read_text())
        cached = 0
        for line in (folder / "memory.stat").read_text().splitlines():
            name, _, number = line.partition(" ")
            cached += int(number) if name in ("active_file", "inactive_file") else 0
        return max(0, limit - used + cached)
    return None
