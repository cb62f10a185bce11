"""What comes in on a connection: bounded while it is parsed, and it may not take for ever to come.

uvicorn hands a request on only when its header is complete, so whoever never completes one must be stopped here.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from pagoda.server.errors import ApiError, bad_request
from pagoda.server.exchange import encoder, error_body
from pagoda.server.limits import Limits

LINGER_SECONDS = 1.0  # a client that is still sending would lose the answer to a connection that is closed at once
LINE_BYTES = 16  # of a line, beside the URL, names and values: a method, a version, blanks, the end
IDLE, HEADER, BODY = "idle", "header", "body"


class BoundedProtocol(HttpToolsProtocol):
    def __init__(self, *arguments: Any, limits: Limits, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._limits = limits
        self._most_raw_bytes = limits.max_url_bytes + limits.max_header_bytes + LINE_BYTES * (1 + limits.max_headers)
        self._running: RequestResponseCycle | None = None
        self._part = IDLE
        """Which part of a request comes next."""
        self._num_headers = self._num_header_bytes = 0
        self._num_raw_bytes = 0
        """Of a header that is not complete, beyond the piece in which it began."""
        self._refusal: ApiError | None = None
        self._is_lingering = False
        self._timer: asyncio.TimerHandle | None = None
        self._timed_part = ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer(IDLE, self._limits.max_header_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)
        if self._running is not None and not self._running.response_complete:  # another was sent behind it
            self._running.disconnected = True
            self._running.message_event.set()
        self.pipeline.clear()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def data_received(self, data: bytes) -> None:
        if self._is_lingering:
            return
        if self._part == HEADER:
            self._num_raw_bytes += len(data)
        super().data_received(data)
        if self._is_lingering or self.transport.is_closing():
            return
        if self._part == HEADER and self._num_raw_bytes > self._most_raw_bytes:
            return self._refuse(header_too_large())
        self._keep_time()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._part = HEADER
        self._num_headers = self._num_header_bytes = self._num_raw_bytes = 0

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > self._limits.max_url_bytes:
            self._refusal = ApiError(414, "invalid_request_error", "the URL is too long", code="url_too_long")
            raise self._refusal

    def on_header(self, name: bytes, value: bytes) -> None:
        self._num_headers += 1
        self._num_header_bytes += len(name) + len(value)
        limits = self._limits
        if self._num_headers > limits.max_headers or self._num_header_bytes > limits.max_header_bytes:
            self._refusal = header_too_large()
            raise self._refusal
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._part = BODY
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._part = IDLE
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """uvicorn's answer to what its parser does not take, and to what was refused while it parsed."""
        self._refuse(self._refusal or bad_request(None, "this is not a valid HTTP request", "invalid_http"))

    def _keep_time(self) -> None:
        """What has not come completely has so many seconds to come."""
        if self._part == IDLE:
            self._stop_timer()
            has_answered = self.cycle is None or self.cycle.response_complete
            if has_answered and self.timeout_keep_alive_task is None:  # what came was no request, or its rest
                self._start_timer(IDLE, self.timeout_keep_alive)
        elif self._timed_part != self._part:
            limits = self._limits
            self._start_timer(
                self._part, limits.max_header_seconds if self._part == HEADER else limits.max_body_seconds
            )

    def _start_timer(self, part: str, seconds: float) -> None:
        self._stop_timer()
        self._timed_part = part
        self._timer = self.loop.call_later(seconds, self._too_late)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._timed_part = ""

    def _too_late(self) -> None:
        part, self._timer, self._timed_part = self._part, None, ""
        if part == IDLE:
            self.transport.close()
        elif self.flow.read_paused:  # it is we who do not read
            self._keep_time()
        else:
            message = f"the {part} of the request did not come in time"
            self._refuse(ApiError(408, "invalid_request_error", message, code="request_timeout"))

    def _refuse(self, error: ApiError) -> None:
        """Answer, if no answer is under way, and read no more."""
        self._stop_timer()
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            is_answered = cycle.response_started or cycle.scope is not self.scope
            cycle.disconnected = True  # what the handler still sends would come after ours
            cycle.message_event.set()
            if is_answered:
                return self.transport.close()
        body = encoder.encode(error_body(error))
        headers = [*self.server_state.default_headers, (b"content-type", b"application/json")]
        lines = [STATUS_LINE[error.status], *(b"%b: %b\r\n" % header for header in headers)]
        lines += [b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body), body]
        self.transport.write(b"".join(lines))
        self._is_lingering = True
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._timer = self.loop.call_later(LINGER_SECONDS, self.transport.close)


def header_too_large() -> ApiError:
    return ApiError(431, "invalid_request_error", "the header is too large", code="header_too_large")
