"""What the host changes of numbers on the device: gathered, then carried out in one copy and one launch."""

from __future__ import annotations

import numpy as np
import torch

from pagoda.core.plan import IntArray
from pagoda.executor.cuda.mailbox import Mailbox
from pagoda.kernels.cuda.counting import bytes_of
from pagoda.kernels.cuda.rows import apply_edits

MAILBOX_NUMBERS = 1 << 22
EDIT_NUMBERS = 3


class Edits:
    """Of one tensor of int32. A list of (target, source, count) is sent, and behind it the values."""

    def __init__(self, numbers: torch.Tensor, most_waiting: int) -> None:
        self._numbers = numbers.view(-1)
        self._mailbox = Mailbox(min(MAILBOX_NUMBERS, most_waiting), numbers.device)
        self._waiting: list[tuple[int, IntArray]] = []
        self._num_waiting = 0

    @property
    def num_bytes(self) -> int:
        """On the device, beside the numbers themselves."""
        return bytes_of(self._mailbox.received)

    @property
    def num_host_bytes(self) -> int:
        return self._mailbox.num_host_bytes

    def add(self, target: int, values: IntArray) -> None:
        """Values from the place `target` on, counted in the flat tensor. No two edits between flushes may overlap."""
        size = len(values) + EDIT_NUMBERS
        if not len(values):
            return
        if self._num_waiting + size > self._mailbox.capacity:
            self.flush()
            if self._numbers.is_cuda:  # the buffers take turns once a step; this one did so in the midst of it
                torch.cuda.current_stream().synchronize()
        self._waiting.append((target, values))
        self._num_waiting += size

    def flush(self) -> None:
        if not self._waiting:
            return
        count = len(self._waiting)
        sizes = [len(values) for _, values in self._waiting]
        buffer = self._mailbox.open()
        first = EDIT_NUMBERS * count
        table = buffer[:first].reshape(count, EDIT_NUMBERS)
        table[:, 0] = [target for target, _ in self._waiting]
        table[:, 2] = sizes
        np.cumsum(sizes[:-1], out=table[1:, 1])
        table[0, 1] = 0
        total = first + sum(sizes)
        np.concatenate([values for _, values in self._waiting], out=buffer[first:total])
        self._mailbox.send(total)
        received = self._mailbox.received
        apply_edits(self._numbers, received[:first].view(count, EDIT_NUMBERS), received[first:total], max(sizes))
        self._waiting.clear()
        self._num_waiting = 0
