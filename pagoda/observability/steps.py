"""What the last steps of an engine did, as plain numbers."""

from __future__ import annotations

from collections import deque

import msgspec

NUM_REMEMBERED = 128


class StepRecord(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One step whose result is back. `time` and `seconds` are those of the turn in which it came back."""

    step_id: int
    time: float
    seconds: float
    num_rows: int
    num_tokens: int
    """Tokens that went through the model."""
    num_drawn: int


def recent_steps() -> deque[StepRecord]:
    """An empty memory of the last steps, the newest at its end."""
    return deque(maxlen=NUM_REMEMBERED)
