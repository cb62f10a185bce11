"""Numbers on their way between host and device, without either waiting for the other."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from pagoda.kernels.cuda.counting import NOWHERE, bytes_of

# A step writes to a buffer while the copies of those before it may be under way.
NUM_BUFFERS = 3


def host_buffers(capacity: int, device: torch.device) -> list[torch.Tensor]:
    """In main memory, pinned where a device reads them; where things are made to be counted, nowhere."""
    where = device if device == NOWHERE else torch.device("cpu")
    pin = device.type == "cuda"
    return [torch.zeros(capacity, dtype=torch.int32, device=where, pin_memory=pin) for _ in range(NUM_BUFFERS)]


def arrays_of(buffers: list[torch.Tensor]) -> list[npt.NDArray[np.int32]]:
    return [buffer.numpy() for buffer in buffers if buffer.device != NOWHERE]


class Mailbox:
    """int32 numbers to one place on the device, through pinned buffers that take turns."""

    def __init__(self, capacity: int, device: torch.device) -> None:
        self.capacity = capacity
        self.received = torch.zeros(capacity, dtype=torch.int32, device=device)
        self._buffers = host_buffers(capacity, device)
        self._arrays = arrays_of(self._buffers)
        self._turn = 0

    @property
    def num_host_bytes(self) -> int:
        return bytes_of(*self._buffers)

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
        self._buffers = host_buffers(capacity, device)
        self._arrays = arrays_of(self._buffers)
        self._events = [torch.cuda.Event() for _ in range(NUM_BUFFERS)] if self._is_far else []
        self._turn = 0

    @property
    def num_host_bytes(self) -> int:
        return bytes_of(*self._buffers)

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
