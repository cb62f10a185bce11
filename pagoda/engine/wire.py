"""How an engine in a process of its own is spoken to: records as msgpack, each behind its length.

A frame is four bytes, little-endian, that say how many follow. One that is longer than `MAX_FRAME_BYTES`, or that is no
record of the right kind, ends the connection: both ends are ours, so it can only be damage.
"""

from __future__ import annotations

import socket
import struct
from typing import Generic, TypeVar

import msgspec

from pagoda.core.errors import EngineError
from pagoda.core.unreadable import UNREADABLE
from pagoda.engine.messages import Message, Update
from pagoda.engine.questions import Answer, Ask

MAX_FRAME_BYTES = 256 << 20
_LENGTH = struct.Struct("<I")


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine turned out to be, once it was built."""

    model: str
    model_path: str
    vocab_size: int
    max_model_len: int
    max_num_seqs: int
    page_size: int
    num_pages: tuple[int, ...]
    weight_bytes: int
    cache_bytes: int
    kv_cache_type: str
    compute: str
    fingerprint: str = ""
    """What its numbers depend on, in one word."""
    planned_bytes: dict[str, int] = {}
    """The ledger, by line."""
    allocated_bytes: dict[str, int] = {}
    """What their owners took."""
    process_bytes: dict[str, int] = {}
    """What each process of a server should come to, once all pages have been used."""


class Hello(msgspec.Struct, frozen=True, array_like=True, tag="hello"):
    """The first words of an engine process."""

    pid: int


class Loading(msgspec.Struct, frozen=True, array_like=True, tag="loading"):
    """How far loading is: tensors read, or weights packed. Between two of them it may still be reading."""

    num_done: int
    num_all: int
    num_reads: int = 0
    """From storage, in no unit: that it grows is what counts."""


class Ready(msgspec.Struct, frozen=True, array_like=True, tag="ready"):
    info: EngineInfo


class Report(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """How the engine stands after a step."""

    time: float
    num_steps: int
    num_running: int
    num_waiting: int
    num_used_pages: tuple[int, ...]
    """Held by requests, by cache group."""
    num_idle_pages: tuple[int, ...]
    """Kept for requests to come, and given up on demand."""
    num_preemptions: int
    num_computed_tokens: int
    num_drawn_tokens: int
    num_prompt_tokens: int
    num_cached_tokens: int
    step_seconds: float
    num_paused: int
    """Sequences that nobody listens to, with a row or without."""
    num_deferred: int = 0
    """Of those that wait, how many wait for a prefix that another computes."""
    num_halved_steps: int = 0
    """Done in parts because a device ran out of memory."""


class Published(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="published"):
    """What one step gave."""

    updates: tuple[Update, ...]
    report: Report


class Alive(msgspec.Struct, frozen=True, array_like=True, tag="alive"):
    """A long step is under way: it has taken so long up to now."""

    step_seconds: float


class Broken(msgspec.Struct, frozen=True, array_like=True, tag="broken"):
    """The engine's last words: why it stops."""

    message: str


FromEngine = Hello | Loading | Ready | Published | Alive | Answer | Broken
ToEngine = Message | Ask

Record = TypeVar("Record")


class FrameDecoder(Generic[Record]):
    """Bytes in, whole records out."""

    def __init__(self, kind: object) -> None:
        self._decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(kind)  # type: ignore[arg-type]
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Record]:
        self._buffer += data
        records: list[Record] = []
        start = 0
        with memoryview(self._buffer) as view:
            while len(view) - start >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(view, start)
                if length > MAX_FRAME_BYTES:
                    raise EngineError(f"a frame of {length} bytes came; the most is {MAX_FRAME_BYTES}")
                end = start + _LENGTH.size + length
                if end > len(view):
                    break
                records.append(self._decode(view[start + _LENGTH.size : end]))
                start = end
        del self._buffer[:start]
        return records

    def _decode(self, payload: memoryview) -> Record:
        with payload:
            try:
                return self._decoder.decode(payload)
            except UNREADABLE as error:
                raise EngineError(f"a frame came that is no record: {error}") from None


_encoder = msgspec.msgpack.Encoder()


def frame(record: FromEngine | ToEngine) -> bytes:
    buffer = bytearray(_LENGTH.size)
    _encoder.encode_into(record, buffer, _LENGTH.size)
    _LENGTH.pack_into(buffer, 0, len(buffer) - _LENGTH.size)
    return bytes(buffer)


def tell(connection: socket.socket, record: FromEngine) -> bool:
    """Send it; whether somebody listens."""
    try:
        connection.sendall(frame(record))
    except OSError:
        return False
    return True
