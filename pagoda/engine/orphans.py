"""A child process that does not outlive its parent, however that one ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int | None = None) -> None:
    """Have the kernel kill this process when its parent is gone (Linux; elsewhere it ends with its connection).

    `parent` is who started it, if it knows: it may have been gone before the first line of this program ran.
    """
    if not sys.platform.startswith("linux"):
        return
    parent = parent or os.getppid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it was gone before the kernel was told
        os.kill(os.getpid(), signal.SIGKILL)
