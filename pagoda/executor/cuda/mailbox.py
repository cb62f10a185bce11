"""Numbers on their way between host and device, without either waiting for the other."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

# A step writes to a buffer while the copies of those before it may be under way.
NUM_BUFFERS = 3


class Mailbox:
    """int32 numbers to one place on the device, through pinned buffers that take turns."""

    def __init__(self, capacity: int, device: torch.device) -> None:
        pin = device.type == "cuda"
        self.capacity = capacity
        self.received = torch.zeros(capacity, dtype=torch.int32, device=device)
        self._buffers = [torch.zeros(capacity, dtype=torch.int32, pin_memory=pin) for _ in range(NUM_BUFFERS)]
        self._arrays = [buffer.numpy() for buffer in self._buffers]
        self._turn = 0

    def open(self) -> npt.NDArray[np.int32]:
        """The buffer to write to before the next `send`."""
        return self._arrays[self._turn]

    def send(self, count: int) -> None:
        """Copy the first `count` numbers in the order of the stream."""
        self.received[:count].copy_(self._buffers[self._turn][:count], non_blocking=True)
        self._turn = (self._turn + 1) % NUM_BUFFERS


class Returns:
    """Drawn tokens on their way back, and the event that says they are there."""

    def __init__(self, capacity: int, device: torch.device) -> None:
        self._is_far = device.type == "cuda"
        self._buffers = [torch.zeros(capacity, dtype=torch.int32, pin_memory=self._is_far) for _ in range(NUM_BUFFERS)]
        self._arrays = [buffer.numpy() for buffer in self._buffers]
        self._events = [torch.cuda.Event() for _ in range(NUM_BUFFERS)] if self._is_far else []
        self._turn = 0

    def fetch(self, numbers: torch.Tensor) -> int:
        """Begin to copy; the number of the buffer, to be waited for."""
        turn = self._turn
        self._turn = (turn + 1) % NUM_BUFFERS
        self._buffers[turn][: len(numbers)].copy_(numbers, non_blocking=True)
        if self._is_far:
            self._events[turn].record()
        return turn

    def wait(self, turn: int, count: int) -> npt.NDArray[np.int32]:
        if self._is_far:
            self._events[turn].synchronize()
        return self._arrays[turn][:count].copy()
