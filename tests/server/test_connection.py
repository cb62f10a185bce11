"""A client that reads slowly is waited for; one that takes nothing is not."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from pagoda.server.connection import LOOKS, Connection


class Timer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Loop:
    def __init__(self) -> None:
        self.timers: list[Timer] = []

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        self.timers.append(Timer(callback))
        return self.timers[-1]

    def pass_time(self) -> bool:
        """Let the newest timer fire; whether there was one."""
        if not self.timers or self.timers[-1].is_cancelled:
            return False
        timer = self.timers.pop()
        timer.callback()
        return True


class Transport:
    """Holds what the client does not take."""

    def __init__(self, own: socket.socket) -> None:
        self.waiting = 1000
        self.is_aborted = False
        self._socket = own

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def get_extra_info(self, name: str) -> socket.socket:
        return self._socket

    def is_closing(self) -> bool:
        return self.is_aborted

    def abort(self) -> None:
        self.is_aborted = True


class Flow:
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


@pytest.fixture
def connection() -> Iterator[Connection]:
    own, other = socket.socketpair()
    made = Connection.__new__(Connection)  # uvicorn's own part needs a whole server
    made._patience, made._next_look, made.loop = 60.0, None, Loop()
    made.transport, made.flow = Transport(own), Flow()
    yield made
    own.close()
    other.close()


def test_a_client_that_takes_nothing_is_let_go(connection: Connection):
    connection.pause_writing()
    for look in range(LOOKS):
        assert not connection.transport.is_aborted, look
        assert connection.loop.pass_time()
    assert connection.transport.is_aborted and connection.unsent_bytes() == 0
    assert not connection.loop.pass_time()


def test_a_client_that_takes_a_little_now_and_then_is_waited_for(connection: Connection):
    connection.pause_writing()
    for _ in range(10 * LOOKS):
        for _ in range(LOOKS // 2):
            assert connection.loop.pass_time()
        connection.transport.waiting -= 1
    assert not connection.transport.is_aborted


def test_nobody_watches_a_client_that_reads(connection: Connection):
    connection.pause_writing()
    connection.resume_writing()
    assert not connection.loop.pass_time()
