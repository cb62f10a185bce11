"""What this server's processes hold in memory."""

from __future__ import annotations

import os
from pathlib import Path

from pagoda.engine.remote import EngineState

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def resident_bytes(pid: int) -> int | None:
    """None where the process is gone or the system does not tell."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return None


def resident_by_process(state: EngineState) -> dict[str, int]:
    """Pages that several processes share count in each of them."""
    pids = {"engine": state.pid, "http": os.getpid(), "supervisor": os.getppid()}
    found = {name: resident_bytes(pid) for name, pid in pids.items() if pid is not None}
    return {name: size for name, size in found.items() if size is not None}


def num_open_files() -> int:
    """Of this process, connections included; 0 where the system does not tell."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0
