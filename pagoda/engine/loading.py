"""While an engine loads it says so, and how far it is: a disk that is slow is told from a process that hangs."""

from __future__ import annotations

import resource
import socket
import threading
from types import TracebackType

from pagoda.engine.wire import Loading, tell

BEAT_SECONDS = 0.25


class LoadingNews:
    """Beside the block, a thread tells what `progress` heard last and what was read from storage until now.

    That it speaks shows only that this process lives. Whether it gets on is for the other end to see: from tensors that
    are done or, within a large one, from pages that came from a disk.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._count = (0, 0)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._tell, name="pagoda-loading", daemon=True)

    def progress(self, num_done: int, num_all: int) -> None:
        self._count = (num_done, num_all)

    def __enter__(self) -> LoadingNews:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()

    def _tell(self) -> None:
        while not self._is_over.wait(BEAT_SECONDS):
            if not tell(self._connection, Loading(*self._count, num_reads())):
                return  # the one who sends next will notice


def num_reads() -> int:
    """Pages and blocks that this process has waited for; a page that is in memory already costs nothing and counts for
    nothing."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_majflt + used.ru_inblock
