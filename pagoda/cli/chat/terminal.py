"""Where a chat writes: answers to stdout, everything else to stderr, so that a pipe gets the answers alone."""

from __future__ import annotations

import io
import sys
from typing import TextIO

# A model may write anything, and a terminal obeys what it is sent: its control characters are shown, not obeyed.
_HARMLESS = str.maketrans(
    {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"}
    | {0x7F: 0x2421}
    | {code: 0xFFFD for code in range(0x80, 0xA0)}
)


class Terminal:
    def __init__(self, answers: TextIO | None = None, notices: TextIO | None = None) -> None:
        self._answers = answers or sys.stdout
        self._notices = notices or sys.stderr
        self._is_screen = self._answers.isatty()

    def write(self, text: str) -> None:
        if text:
            self._answers.write(text.translate(_HARMLESS) if self._is_screen else text)
            self._answers.flush()

    def notice(self, text: str) -> None:
        self._answers.flush()
        print(text, file=self._notices, flush=True)

    def show_passing(self, text: str) -> None:
        """A line that the next one overwrites; only where somebody is looking."""
        if self._notices.isatty():
            self._notices.write(f"\r\x1b[K{text}")
            self._notices.flush()


def accept_any_text() -> None:
    """Bytes that are no text, and characters that a terminal cannot show, are replaced and end no chat."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
