"""A benchmark while it runs: one line that moves on a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

from pagoda.bench.load import Run
from pagoda.bench.measures import first_token
from pagoda.bench.serve import Step

if TYPE_CHECKING:
    from rich.live import Live
    from rich.progress import Progress

NUM_RECENT = 200


class BenchProgress:
    """Reads the run's own list; what it has seen once it does not count again."""

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled and sys.stderr.isatty()
        self._live: Live | None = None

    def __enter__(self) -> BenchProgress:
        if self._enabled:
            from rich.console import Console
            from rich.live import Live

            console = Console(stderr=True, highlight=False)
            self._live = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, step: Step, run: Run) -> None:
        if self._live is not None:
            self._live.update(self._line(step, run), refresh=True)

    def say(self, line: str) -> None:
        """A line that stays, among the results."""
        if self._live is None:
            print(line, flush=True)
            return
        self._live.update("")
        self._live.stop()
        print(line, flush=True)
        self._live.start()

    def _line(self, step: Step, run: Run) -> str:
        if not run.has_started:
            return f"[bold]{step}[/bold]: warming up"
        ended = [outcome for outcome in run.outcomes if outcome.ended]
        num_failed = sum(bool(outcome.error) for outcome in ended)
        num_pieces = sum(len(outcome.times) for outcome in run.outcomes)
        seconds = max(time.perf_counter() - run.started, 1e-9)
        firsts = sorted(first_token(outcome) for outcome in ended[-NUM_RECENT:] if outcome.times)
        middle = f", first token {1000 * firsts[len(firsts) // 2]:,.0f} ms" if firsts else ""
        failed = f", [red]{num_failed} failed[/red]" if num_failed else ""
        return (
            f"[bold]{step}[/bold]: {seconds:.0f} s, {len(ended):,} answered, {num_pieces / seconds:,.0f} tokens/s"
            f"{middle}{failed}"
        )


class RunsProgress:
    """A bar over runs of equal length."""

    def __init__(self, num_runs: int, enabled: bool) -> None:
        self._num_runs = num_runs
        self._enabled = enabled and sys.stderr.isatty()
        self._bar: Progress | None = None

    def __enter__(self) -> RunsProgress:
        if self._enabled:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.add_task("Running", total=self._num_runs)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, num_done: int) -> None:
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=num_done)


@contextmanager
def passing(text: str, enabled: bool) -> Iterator[None]:
    """What is going on, on a terminal, while it goes on."""
    if not enabled or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True, highlight=False).status(text):
        yield
