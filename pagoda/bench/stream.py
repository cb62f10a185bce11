"""An answer of OpenAI's API as it comes in: when each piece came, how many tokens it was, what went wrong."""

from __future__ import annotations

from array import array

import msgspec

from pagoda.bench.http import BadAnswer
from pagoda.core.unreadable import UNREADABLE


class PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: PromptDetails | None = None


class Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class Choice(msgspec.Struct):
    text: str | None = None
    delta: Delta | None = None
    finish_reason: str | None = None

    def new_text(self) -> str | None:
        """None: this is no piece of an answer, only news about it."""
        if self.delta is not None:
            return self.delta.content or self.delta.reasoning_content or self.delta.reasoning or None
        # The old API shows a token even where its text is not yet certain.
        return None if not self.text and self.finish_reason is not None else self.text


class Chunk(msgspec.Struct):
    choices: list[Choice] = []
    usage: Usage | None = None
    error: msgspec.Raw = msgspec.Raw()


_decode = msgspec.json.Decoder(Chunk).decode


class Stream:
    """Fed with the body of an answer, piece by piece."""

    def __init__(self, keeps_text: bool = False) -> None:
        self.times: array[float] = array("d")
        """When each piece of the answer came."""
        self.usage: Usage | None = None
        self.error = ""
        """What the server said went wrong."""
        self.is_done = False
        self.body = bytearray()
        """What came instead of a stream, such as an error in JSON."""
        self._texts: list[str] | None = [] if keeps_text else None
        self._rest = b""

    @property
    def text(self) -> str:
        return "".join(self._texts or ())

    def take(self, data: bytes, time: float) -> None:
        if self._rest:
            data = self._rest + data
        lines = data.split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            if line.startswith(b"data:"):
                self._take_event(line[5:].strip(), time)
            elif line and not self.times and len(self.body) < 1 << 16:
                self.body += line

    def end(self) -> None:
        """No more comes: an error in JSON has no line of its own."""
        self.body += self._rest
        self._rest = b""

    def _take_event(self, data: bytes, time: float) -> None:
        if data == b"[DONE]":
            self.is_done = True
            return
        try:
            chunk = _decode(data)
        except UNREADABLE as error:
            raise BadAnswer(f"an event is no chunk of an answer: {error}") from None
        if chunk.error:
            self.error = error_message(bytes(chunk.error))
        if chunk.usage is not None:
            self.usage = chunk.usage
        for choice in chunk.choices:
            text = choice.new_text()
            if text is None:
                continue
            self.times.append(time)
            if self._texts is not None:
                self._texts.append(text)


def error_message(data: bytes) -> str:
    """The words in an error object, or in a body that holds one."""
    try:
        content = msgspec.json.decode(data)
    except UNREADABLE:
        return data[:200].decode("utf-8", "replace")
    if isinstance(content, dict):
        inner = content.get("error", content)
        content = inner.get("message", inner) if isinstance(inner, dict) else inner
    return str(content)[:200]
