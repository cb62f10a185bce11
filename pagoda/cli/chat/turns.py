"""What the user says next: lines from a pipe or from a terminal, and blocks of several lines between triple quotes."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TextIO

PROMPT = ">>> "
CONTINUATION = "... "
HOW_TO_LEAVE = "(/bye or Ctrl-D leaves)"
QUOTES = '"""'
# A block may be a whole turn or the text of a command.
_BLOCK = re.compile(r'(\s*(?:/set\s+system\s+)?)"""(.*)', re.DOTALL)


@dataclass(frozen=True)
class Turn:
    text: str
    is_quoted: bool = False
    """It stood between triple quotes, so it is text and no command, whatever it begins with."""

    @property
    def is_command(self) -> bool:
        return self.text.startswith("/") and not self.is_quoted


NextLine = Callable[[str], str]
"""Reads a line behind a prompt; EOFError at the end."""


def piped_turns(stream: TextIO) -> Iterator[Turn]:
    """Every line that is not blank, and every block, until the input ends."""

    def next_line(prompt: str) -> str:
        line = stream.readline()
        if not line:
            raise EOFError
        return line.rstrip("\r\n")

    while True:
        try:
            first = next_line("")
        except EOFError:
            return
        turn = _rest_of_block(first, next_line)
        if turn.text.strip():
            yield turn


def typed_turns(next_line: NextLine, notice: Callable[[str], None]) -> Iterator[Turn]:
    """Turns typed at a prompt until Ctrl-D; Ctrl-C gives up what was typed and asks again."""
    while True:
        try:
            turn = _rest_of_block(_joined_line(next_line), next_line)
        except KeyboardInterrupt:
            notice(f"\n{HOW_TO_LEAVE}")
            continue
        except EOFError:
            notice("")
            return
        if turn.text.strip():
            yield turn


def _joined_line(next_line: NextLine) -> str:
    """One line, or several of which all but the last end in a backslash."""
    line = next_line(PROMPT)
    while line.endswith("\\"):
        line = f"{line[:-1]}\n{_or_nothing(next_line)}"
    return line


def _or_nothing(next_line: NextLine) -> str:
    try:
        return next_line(CONTINUATION)
    except EOFError:
        return ""


def _rest_of_block(first: str, next_line: NextLine) -> Turn:
    """`first` itself unless it opens a block; then all up to the closing quotes, or to the end of the input."""
    opening = _BLOCK.fullmatch(first)
    if opening is None:
        return Turn(first)
    before, text = opening.groups()
    with suppress(EOFError):
        while QUOTES not in text:
            text += f"\n{next_line(CONTINUATION)}"
    inside, _, after = text.partition(QUOTES)
    return Turn(before.lstrip() + (inside + after).strip("\n"), is_quoted=not before.strip())


def terminal_line_reader() -> NextLine:
    """`input` with line editing where readline is there; the prompt never goes among redirected answers."""
    with suppress(ImportError):
        import readline  # noqa: F401  importing it is what gives `input` its editing keys and history
    if sys.stdout.isatty():
        return input

    def ask_on_stderr(prompt: str) -> str:
        print(prompt, end="", file=sys.stderr, flush=True)
        return input()

    return ask_on_stderr
