"""A saved trace: one request a line, with the time it was sent. A run can write one, and any can be played again.

{"at": 0.25, "prompt": "Name a river.", "max_tokens": 32}
{"at": 0.31, "prompt": [17, 204, 9], "max_tokens": 16}
{"at": 0.40, "messages": [{"role": "user", "content": "Name a river."}], "max_tokens": 32}
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType

import msgspec

from pagoda.bench.conversation import Conversation, Message, Prompt, Question, is_messages
from pagoda.core.errors import InvalidRequest
from pagoda.core.unreadable import UNREADABLE


class TraceLine(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    at: float
    max_tokens: int
    prompt: str | list[int] | None = None
    messages: list[Message] | None = None


_decoder = msgspec.json.Decoder(TraceLine)


def read_trace(path: Path) -> list[Conversation]:
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise InvalidRequest("--trace", f"{path} cannot be read: {error.strerror}") from None
    found = [_read(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    if not found:
        raise InvalidRequest("--trace", f"{path} is empty")
    return sorted(found, key=lambda conversation: conversation.at or 0.0)


def _read(number: int, line: bytes) -> Conversation:
    try:
        read = _decoder.decode(line)
    except UNREADABLE as error:
        raise InvalidRequest("--trace", f"line {number}: {error}") from None
    prompt: Prompt | None = read.prompt if read.messages is None else read.messages  # type: ignore[assignment]
    if not prompt or (read.prompt is not None and read.messages is not None):
        raise InvalidRequest("--trace", f"line {number}: needs either a prompt or messages")
    if read.at < 0 or read.max_tokens < 1:
        raise InvalidRequest("--trace", f"line {number}: `at` must not be negative, `max_tokens` at least 1")
    return Conversation((Question(prompt, read.max_tokens),), read.at)


def played(trace: Iterable[Conversation], speed: float) -> Iterator[tuple[float, Conversation]]:
    for conversation in trace:
        yield (conversation.at or 0.0) / speed, conversation


class TraceWriter:
    """Writes down what is sent, turns of a conversation with all that was said before them."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = path.open("wb")
        except OSError as error:
            raise InvalidRequest("--record-trace", f"{path} cannot be written: {error.strerror}") from None

    def add(self, at: float, question: Question) -> None:
        line = TraceLine(round(at, 6), question.max_tokens)
        if is_messages(question.prompt):
            line.messages = question.prompt  # type: ignore[assignment]
        else:
            line.prompt = question.prompt  # type: ignore[assignment]
        self._file.write(msgspec.json.encode(line) + b"\n")

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
