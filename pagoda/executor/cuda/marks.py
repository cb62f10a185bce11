"""When steps begin and end by the GPU's own clock, and so how long it waits between two of them."""

from __future__ import annotations

from itertools import pairwise

import torch


class DeviceMarks:
    """Marks are put among the work and cost the host microseconds; they are read when the work is done."""

    def __init__(self) -> None:
        self._begins: list[torch.cuda.Event] = []
        self._ends: list[torch.cuda.Event] = []

    def begin(self) -> None:
        self._begins.append(self._mark())

    def end(self) -> None:
        self._ends.append(self._mark())

    def clear(self) -> None:
        self._begins.clear()
        self._ends.clear()

    def waited_seconds(self) -> float:
        """Between the end of each step and the beginning of the next."""
        torch.cuda.synchronize()
        steps = zip(self._begins, self._ends, strict=True)
        return sum(max(0.0, first[1].elapsed_time(second[0])) for first, second in pairwise(steps)) / 1e3

    def _mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event
