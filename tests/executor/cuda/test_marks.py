from __future__ import annotations

import pytest
import torch

from pagoda.executor.cuda.marks import DeviceMarks


class FakeEvent:
    """Milliseconds of a device that a test moves on."""

    now = 0.0

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.at = FakeEvent.now

    def elapsed_time(self, other: FakeEvent) -> float:
        return other.at - self.at


def test_only_the_time_between_steps_is_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    marks = DeviceMarks()
    for begin, end in ((0.0, 10.0), (12.0, 20.0), (20.0, 30.0), (35.0, 40.0)):
        FakeEvent.now = begin
        marks.begin()
        FakeEvent.now = end
        marks.end()
    assert marks.waited_seconds() == pytest.approx(0.007)
    marks.clear()
    assert marks.waited_seconds() == 0.0
