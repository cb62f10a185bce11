"""Shows a pull: a moving bar on a terminal, one line a step elsewhere. Always on stderr, never among the results."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, TextIO

from pagoda.cli.formatting import format_bytes
from pagoda.weights.sources.base import ProgressCallback, PullProgress

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


@contextmanager
def show_progress(stream: TextIO | None = None, quiet: bool = False) -> Iterator[ProgressCallback]:
    """A callback for `ModelStore.pull`; leaving the context ends the display."""
    stream = stream or sys.stderr
    if quiet:
        yield lambda progress: None
    elif stream.isatty():
        with ExitStack() as opened:
            yield _FirstUpdateOpens(opened, stream).update
    else:
        yield LineProgress(stream).update


class _FirstUpdateOpens:
    """A bar only where there is something to show: an empty display would still leave a blank line."""

    def __init__(self, opened: ExitStack, stream: TextIO) -> None:
        self._opened = opened
        self._stream = stream
        self._bar: BarProgress | None = None

    def update(self, progress: PullProgress) -> None:
        if self._bar is None:
            self._bar = BarProgress(self._opened.enter_context(_rich_progress(self._stream)))
        self._bar.update(progress)


class LineProgress:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._step = ""

    def update(self, progress: PullProgress) -> None:
        if progress.step == self._step:
            return
        self._step = progress.step
        size = f" ({format_bytes(progress.num_total)})" if progress.num_total is not None else ""
        print(f"{progress.step}{size}", file=self._stream, flush=True)


class BarProgress:
    """One bar a step; a step that is over keeps its full bar."""

    def __init__(self, display: Progress) -> None:
        self._display = display
        self._step = ""
        self._task: TaskID | None = None

    def update(self, progress: PullProgress) -> None:
        if self._task is None or progress.step != self._step:
            self._finish()
            self._step = progress.step
            self._task = self._display.add_task(progress.step, total=progress.num_total)
        self._display.update(self._task, completed=progress.num_done)

    def _finish(self) -> None:
        if self._task is not None and self._display.tasks[self._task].total is None:
            self._display.update(self._task, visible=False)


def _rich_progress(stream: TextIO) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    return Progress(*columns, TimeRemainingColumn(), console=Console(file=stream))
