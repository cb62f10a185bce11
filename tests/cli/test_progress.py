"""Progress: one line a step in a pipe, a bar on a terminal."""

from __future__ import annotations

import io

from pagoda.cli.progress import show_progress
from pagoda.weights.sources.base import PullProgress

REPORTS = [
    PullProgress("looking up x"),
    *(PullProgress("fetching x", num_done, 2_000_000) for num_done in (0, 1_000_000, 2_000_000)),
    PullProgress("extracting model.gguf", 500, 500),
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(stream: io.StringIO, quiet: bool = False) -> str:
    with show_progress(stream, quiet) as progress:
        for report in REPORTS:
            progress(report)
    return stream.getvalue()


def test_a_pipe_gets_one_line_a_step() -> None:
    assert shown(io.StringIO()) == "looking up x\nfetching x (2.0 MB)\nextracting model.gguf (500 B)\n"


def test_a_terminal_gets_bars() -> None:
    text = shown(Terminal())
    assert "fetching x" in text and "2.0/2.0 MB" in text and "\x1b[" in text


def test_quiet() -> None:
    assert shown(Terminal(), quiet=True) == ""
