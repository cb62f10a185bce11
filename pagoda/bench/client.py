"""Asks an OpenAI server and notes when what came back."""

from __future__ import annotations

import asyncio
import ssl
import time
from array import array
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from pagoda.bench.conversation import Question, as_messages, is_messages
from pagoda.bench.http import BadAnswer, Connection, ConnectionLost, Response, Take
from pagoda.bench.stream import Stream, error_message
from pagoda.core.errors import InvalidRequest, PagodaError
from pagoda.core.unreadable import UNREADABLE

Endpoint = Literal["completions", "chat"]
CUT_OFF = "cut off"
"""Not a failure of the server: the run was interrupted."""
PATHS: dict[Endpoint, str] = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}


@dataclass(frozen=True)
class Target:
    """Which server, and how it is asked."""

    url: str
    model: str = ""
    endpoint: Endpoint = "completions"
    api_key: str | None = None
    verifies_tls: bool = True
    connect_seconds: float = 10.0
    answer_seconds: float = 600.0
    """The longest that one answer may take."""
    fields: dict[str, Any] = field(default_factory=dict)
    """What every body holds beside the prompt: temperature, ignore_eos and the like."""


@dataclass(slots=True)
class Outcome:
    """One request. Times are of `time.perf_counter`."""

    sent: float
    ended: float = 0.0
    times: array[float] = field(default_factory=lambda: array("d"))
    """When each piece of the answer came."""
    num_prompt: int = 0
    num_cached: int = 0
    num_output: int = 0
    error: str = CUT_OFF
    """What kind of failure it was; empty for a whole answer."""
    message: str = ""
    text: str = ""


class Client:
    """Connections are kept and used again, as clients do."""

    def __init__(self, target: Target) -> None:
        address = urlsplit(target.url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise InvalidRequest("URL", f"{target.url!r} is no address such as http://127.0.0.1:8000")
        self._target = target
        self._host = address.hostname
        self._port = address.port or (443 if address.scheme == "https" else 80)
        self._netloc = address.netloc.rpartition("@")[2]
        self._base = address.path.rstrip("/").removesuffix("/v1")
        self._tls = _tls_context(target.verifies_tls) if address.scheme == "https" else None
        self._idle: list[Connection] = []

    async def first_model(self) -> str:
        """The name of the first model the server lists. Also shows that there is a server."""
        body = bytearray()
        try:
            async with asyncio.timeout(self._target.connect_seconds):
                response = await self._send(
                    self._head("GET", "/v1/models") + b"\r\n", lambda piece, _: body.extend(piece)
                )
        except (OSError, TimeoutError, ConnectionLost, BadAnswer) as error:
            raise PagodaError(f"no server answers at {self._target.url}: {_reason(error)}") from None
        if response.status != 200:
            words = error_message(bytes(body))
            raise PagodaError(f"{self._target.url} answers /v1/models with {response.status}: {words}")
        try:
            return str(msgspec.json.decode(body)["data"][0]["id"])
        except (*UNREADABLE, LookupError, TypeError):
            raise PagodaError(f"{self._target.url}/v1/models lists no model; name one with --model") from None

    async def ask(self, question: Question, outcome: Outcome, keeps_text: bool = False) -> None:
        """Fill in what became of it. Only a cancellation is raised, and what had come until then is noted."""
        stream = Stream(keeps_text)
        outcome.times = stream.times
        try:
            async with asyncio.timeout(self._target.answer_seconds):
                response = await self._send(self._request(question), stream.take)
            stream.end()
            outcome.error, outcome.message = _failure(response, stream)
        except TimeoutError:
            outcome.error, outcome.message = "timeout", f"no answer within {self._target.answer_seconds:g} s"
        except ConnectionLost as error:
            outcome.error, outcome.message = "connection lost", str(error)
        except BadAnswer as error:
            outcome.error, outcome.message = "bad answer", str(error)
        except OSError as error:
            outcome.error, outcome.message = "no connection", _reason(error)
        finally:
            outcome.ended = time.perf_counter()
            _note(stream, outcome)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    async def _send(self, request: bytes, take: Take) -> Response:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_open:
                continue
            try:
                return await self._ask(connection, request, take)
            except ConnectionLost as error:
                if error.has_begun:
                    raise
                # A server may hang up on an idle connection in the moment it is used: another one is tried.
        connection = await Connection.open(self._host, self._port, self._tls, self._target.connect_seconds)
        return await self._ask(connection, request, take)

    async def _ask(self, connection: Connection, request: bytes, take: Take) -> Response:
        response = await connection.ask(request, take)
        if connection.is_open:
            self._idle.append(connection)
        return response

    def _request(self, question: Question) -> bytes:
        target = self._target
        body: dict[str, Any] = {"model": target.model, "max_tokens": question.max_tokens}
        prompt = question.prompt
        endpoint: Endpoint = "chat" if is_messages(prompt) else target.endpoint
        if endpoint == "chat":
            body["messages"] = prompt if is_messages(prompt) else as_messages(prompt)  # type: ignore[arg-type]
        else:
            body["prompt"] = prompt
        body |= {"stream": True, "stream_options": {"include_usage": True}, **target.fields}
        data = msgspec.json.encode(body)
        head = self._head("POST", PATHS[endpoint])
        return b"%bContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (head, len(data), data)

    def _head(self, method: str, path: str) -> bytes:
        lines = [f"{method} {self._base}{path} HTTP/1.1", f"Host: {self._netloc}", "User-Agent: pagoda-bench"]
        if self._target.api_key:
            lines.append(f"Authorization: Bearer {self._target.api_key}")
        return ("\r\n".join(lines) + "\r\n").encode("latin-1")


def _note(stream: Stream, outcome: Outcome) -> None:
    outcome.text = stream.text
    outcome.num_output = len(stream.times)
    if stream.usage is None:
        return
    outcome.num_prompt = stream.usage.prompt_tokens
    outcome.num_output = stream.usage.completion_tokens or outcome.num_output
    details = stream.usage.prompt_tokens_details
    outcome.num_cached = (details.cached_tokens or 0) if details is not None else 0


def _failure(response: Response, stream: Stream) -> tuple[str, str]:
    if response.status != 200:
        return f"HTTP {response.status}", error_message(bytes(stream.body))
    if stream.error:
        return "error in the stream", stream.error
    if not stream.is_done:
        return "cut short", "the stream ended without [DONE]"
    return "", ""


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "it took too long"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message}); --no-tls-verify takes it as it is"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _tls_context(verifies: bool) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if not verifies:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
