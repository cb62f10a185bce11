"""HTTP by hand, for what no client library would send."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable
from urllib.parse import urlsplit

PATIENCE = 30.0
PIECE = 1 << 14


def connect(url: str, receive_buffer: int | None = None) -> socket.socket:
    parts = urlsplit(url)
    connection = socket.socket()
    if receive_buffer is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.settimeout(PATIENCE)
    connection.connect((parts.hostname, parts.port))
    return connection


def head(method: str, target: str, headers: Iterable[tuple[str, str]] = ()) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "Host: localhost", *(f"{name}: {value}" for name, value in headers)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def answer_to(url: str, pieces: Iterable[bytes], pause: float = 0.0) -> tuple[bytes, int]:
    """The answer to what was sent, and how many bytes were sent until it began to come. No more is sent after that."""
    num_sent = 0
    with connect(url) as connection:
        connection.setblocking(False)
        answer = b""
        try:
            for piece in pieces:
                answer = _send(connection, piece)
                num_sent += len(piece)
                if answer:
                    break
                time.sleep(pause)
            connection.settimeout(PATIENCE)
            while not is_complete(answer) and (data := connection.recv(PIECE)):
                answer += data
        except ConnectionError:
            pass
        return answer, num_sent


def _send(connection: socket.socket, piece: bytes) -> bytes:
    """Send it all, unless an answer comes before."""
    deadline = time.monotonic() + PATIENCE
    while piece and time.monotonic() < deadline:
        try:
            answer = connection.recv(PIECE)
            return answer or b"closed"
        except BlockingIOError:
            pass
        try:
            piece = piece[connection.send(piece) :]
        except BlockingIOError:
            time.sleep(0.001)
    return b""


def is_complete(answer: bytes) -> bool:
    header, found, body = answer.partition(b"\r\n\r\n")
    for line in header.lower().split(b"\r\n"):
        if found and line.startswith(b"content-length:"):
            return len(body) >= int(line.partition(b":")[2])
    return False


def status_of(answer: bytes) -> int:
    assert answer.startswith(b"HTTP/1.1 "), answer[:200]
    return int(answer[9:12])
