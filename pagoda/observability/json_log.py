"""Log lines as JSON, one object a line. A line about a request carries the id that its caller knows it by."""

from __future__ import annotations

import logging
import sys
import threading
import time
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

import msgspec

Level = Literal["debug", "info", "warning", "error"]
TOGETHER_SECONDS = 0.1
"""Lines that come within so short a time of the last are written together."""

current_request_id: ContextVar[str] = ContextVar("current_request_id", default="")
"""Set while a request is being answered: every line written meanwhile is about it."""


class JsonLines(logging.Formatter):
    """`extra={"fields": {...}}` adds to a line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if request_id := current_request_id.get():
            line["request_id"] = request_id
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


class CollectedLines(logging.Handler):
    """Writes a line at once, unless the last was written a moment ago: then with all others of that moment, in one
    call. A warning never waits, nor what came before it.

    A server that refuses hundreds of requests a second would make as many calls, each of them a system call.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._lines: list[str] = []
        self._last_written = 0.0
        self._is_wanted = threading.Event()
        self._writer: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:  # the handler's lock is held
        try:
            self._lines.append(self.format(record))
            is_due = time.monotonic() - self._last_written >= TOGETHER_SECONDS
            if is_due or record.levelno >= logging.WARNING:
                self.flush()
            elif len(self._lines) == 1:
                self._write_later()
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        self.acquire()
        try:
            if self._lines:
                text = "\n".join(self._lines) + "\n"
                self._lines.clear()
                self._last_written = time.monotonic()
                self._stream.write(text)
            self._stream.flush()
        finally:
            self.release()

    def close(self) -> None:
        self.flush()
        super().close()

    def _write_later(self) -> None:
        if self._writer is None:
            self._writer = threading.Thread(target=self._write_what_waits, name="pagoda-log", daemon=True)
            self._writer.start()
        self._is_wanted.set()

    def _write_what_waits(self) -> None:
        while True:
            self._is_wanted.wait()
            self._is_wanted.clear()
            time.sleep(TOGETHER_SECONDS)
            try:
                self.flush()
            except Exception:  # the stream is gone, and with it whoever could be told
                self._lines.clear()


def set_up_logging(level: Level) -> None:
    handler = CollectedLines(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
