"""A command in a terminal of its own, with someone at the keyboard."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import subprocess
import sys
import termios
from pathlib import Path
from types import TracebackType

REPOSITORY = Path(__file__).resolve().parents[2]
CTRL_C, CTRL_D = "\x03", "\x04"
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class TerminalProcess:
    """`pagoda` with these words; `expect` waits for what the screen shows next, `type` presses keys."""

    def __init__(self, *words: str, timeout: float = 120) -> None:
        self._keyboard, screen = pty.openpty()
        self._timeout = timeout
        self._unread = ""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pagoda", *words],
            cwd=REPOSITORY,
            env={**os.environ, "TERM": "dumb", "PYTHONUTF8": "1"},
            stdin=screen,
            stdout=screen,
            stderr=screen,
            start_new_session=True,
            preexec_fn=_own_the_terminal,
        )
        os.close(screen)

    def __enter__(self) -> TerminalProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._keyboard)

    def type(self, text: str) -> None:
        os.write(self._keyboard, text.encode())

    def press(self, key: str, until: str) -> None:
        """Press a key until this is shown, as a person would: `input` may miss a signal that comes with other keys."""
        self.type(key)
        while until not in self._unread:
            if not select.select([self._keyboard], [], [], 2.0)[0]:
                self.type(key)
                continue
            piece = self._read()
            assert piece is not None, f"the program ended before it showed {until!r}; unread is {self._unread!r}"
            self._unread += piece
        self.expect(until)

    def expect(self, text: str) -> str:
        """Everything shown up to and with `text`; fails when it does not come."""
        while text not in self._unread:
            piece = self._read()
            assert piece is not None, f"the program ended before it showed {text!r}; unread is {self._unread!r}"
            self._unread += piece
        before, _, self._unread = self._unread.partition(text)
        return before + text

    def wait(self) -> tuple[int, str]:
        """Exit code, and what was shown and not yet read, once the program has ended by itself."""
        while (piece := self._read()) is not None:
            self._unread += piece
        return self._process.wait(self._timeout), self._unread

    def _read(self) -> str | None:
        """A piece of what is shown, without the codes that only move the cursor; None at the end."""
        ready, _, _ = select.select([self._keyboard], [], [], self._timeout)
        assert ready, f"nothing was shown for {self._timeout} s; unread is {self._unread!r}"
        try:
            data = os.read(self._keyboard, 65536)
        except OSError:  # Linux's way of saying that nobody has the terminal open any more
            return None
        return _ESCAPES.sub("", data.decode("utf-8", "replace")).replace("\r", "")


def _own_the_terminal() -> None:
    """The keyboard's Ctrl-C reaches only the programs that the terminal belongs to."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
