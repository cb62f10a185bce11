"""A progress bar for batches, with tokens a second; silent where nobody looks."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pagoda.engine.output import RequestOutput


class BatchProgress:
    """Counts finished requests and the tokens drawn for them."""

    def __init__(self, num_requests: int, enabled: bool) -> None:
        self._num_requests = num_requests
        self._enabled = enabled and num_requests > 0 and sys.stderr.isatty()
        self._bar: Any = None
        self._task: Any = None
        self._drawn: dict[str, int] = {}
        self._num_drawn = 0
        self._finished: set[str] = set()
        self._started = 0.0

    def __enter__(self) -> BatchProgress:
        self._started = time.monotonic()
        if self._enabled:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeElapsedColumn(),
            )
            self._bar = Progress(*columns, console=Console(stderr=True))
            self._bar.start()
            self._task = self._bar.add_task("Answering", total=self._num_requests, rate="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, output: RequestOutput) -> None:
        if self._bar is None:
            return
        count = sum(len(answer.token_ids) for answer in output.outputs)
        self._num_drawn += count - self._drawn.get(output.request_id, 0)
        self._drawn[output.request_id] = count
        if output.finished:
            self._finished.add(output.request_id)  # one step may bring several news of the same request
        rate = self._num_drawn / max(1e-9, time.monotonic() - self._started)
        self._bar.update(self._task, completed=len(self._finished), rate=f"{rate:,.1f} tokens/s")
