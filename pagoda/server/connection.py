"""A client's connection: how much may lie ready for it, and how long it may take nothing of that."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import socket
import struct
import sys
import termios
from typing import Any

from pagoda.server.incoming import BoundedProtocol

LOOKS = 20  # at a client that does not read, in the time that it is given
logger = logging.getLogger(__name__)


class Connection(BoundedProtocol):
    """With a limit to what the kernel holds for the client, and an end to waiting for it.

    What a handler sends beyond these buffers makes it wait; its request pauses meanwhile.
    """

    def __init__(self, *args: Any, send_buffer_bytes: int, slow_reader_seconds: float, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self._send_buffer_bytes = send_buffer_bytes
        self._patience = slow_reader_seconds
        self._next_look: asyncio.TimerHandle | None = None
        self._num_unsent = 0
        self._num_looks_left = LOOKS

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if transport.get_extra_info("socket").family != socket.AF_UNIX:
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watching()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_watching()

    def resume_writing(self) -> None:
        self._stop_watching()
        super().resume_writing()

    def on_response_complete(self) -> None:
        """The last of an answer waits in the buffers, too, and for nobody else's sake."""
        super().on_response_complete()
        if not self.transport.is_closing() and self.transport.get_write_buffer_size():
            self._start_watching()

    def unsent_bytes(self) -> int:
        """What the client has not taken: in this process, and in the kernel where that can be asked."""
        if self.transport.is_closing():
            return 0
        waiting: int = self.transport.get_write_buffer_size()
        if sys.platform == "linux":
            number = self.transport.get_extra_info("socket").fileno()
            (queued,) = struct.unpack("i", fcntl.ioctl(number, termios.TIOCOUTQ, b"\0" * 4))
            waiting += queued
        return waiting

    def _start_watching(self) -> None:
        self._num_unsent, self._num_looks_left = self.unsent_bytes(), LOOKS
        self._look_later()

    def _stop_watching(self) -> None:
        if self._next_look is not None:
            self._next_look.cancel()
            self._next_look = None

    def _look_later(self) -> None:
        self._stop_watching()
        self._next_look = self.loop.call_later(self._patience / LOOKS, self._look)

    def _look(self) -> None:
        self._next_look = None
        left = self.unsent_bytes()
        if not left:
            return
        self._num_looks_left = LOOKS if left != self._num_unsent else self._num_looks_left - 1
        self._num_unsent = left
        if self._num_looks_left:
            self._look_later()
            return
        logger.warning("a client took nothing for %.0f s and is let go with %d bytes unread", self._patience, left)
        self.transport.abort()
