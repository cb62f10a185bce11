"""What an engine tells while it loads."""

from __future__ import annotations

import mmap
import os
import socket
import time
from pathlib import Path

import pytest

from pagoda.engine import loading
from pagoda.engine.loading import LoadingNews, num_reads
from pagoda.engine.wire import FrameDecoder, FromEngine, Loading


def test_it_tells_how_far_it_is_until_it_is_there(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(loading, "BEAT_SECONDS", 0.01)
    here, there = socket.socketpair()
    decoder: FrameDecoder[FromEngine] = FrameDecoder(FromEngine)
    with here, there:
        with LoadingNews(here) as news:
            seen = decoder.feed(there.recv(4096))
            news.progress(2, 5)
            deadline = time.monotonic() + 10
            while not any(isinstance(one, Loading) and one.num_done == 2 for one in seen):
                assert time.monotonic() < deadline
                seen += decoder.feed(there.recv(4096))
        there.setblocking(False)
        with pytest.raises(BlockingIOError):
            while there.recv(4096):
                pass
        time.sleep(0.05)
        with pytest.raises(BlockingIOError):
            there.recv(4096)
    assert isinstance(seen[0], Loading) and (seen[0].num_done, seen[0].num_all) == (0, 0)


def test_nobody_need_listen(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(loading, "BEAT_SECONDS", 0.01)
    here, there = socket.socketpair()
    with here:
        there.close()
        with LoadingNews(here) as news:
            time.sleep(0.05)
            news.progress(1, 2)


def test_pages_that_come_from_a_disk_are_seen(tmp_path: Path):
    """As far as the file system lets go of what it has: a tmpfs has no disk to read from."""
    path = tmp_path / "weights"
    path.write_bytes(os.urandom(1 << 20))
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        before = num_reads()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as pages:
            sum(pages[:: mmap.PAGESIZE])
    if num_reads() == before:
        pytest.skip("this file system keeps its pages in memory")
    again = num_reads()
    path.read_bytes()
    assert num_reads() - again < again - before, "what is in memory is no progress"
