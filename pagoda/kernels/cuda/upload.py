"""From a file's pages to the device: through pinned memory, several readers at once."""

from __future__ import annotations

import threading
import warnings
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch

from pagoda.kernels.base import Weight

PIECE_BYTES = 32 << 20
NUM_READERS = 8
STORED_TYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}


class Uploader:
    """`put` returns at once where the device is not this machine's own memory; `close` waits for all of them."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._is_far = device.type == "cuda"
        self._pool = ThreadPoolExecutor(NUM_READERS, "pagoda-upload") if self._is_far else None
        self._own = threading.local()
        self._futures: list[Future[None]] = []

    def put(self, weight: Weight, target: torch.Tensor) -> None:
        """Fill `target`, which is contiguous, with the weight in the target's type."""
        if self._pool is None:
            target.copy_(_values(weight).view(target.shape))
            return
        # Its memory may have been another's, whom work that was launched before still reads.
        is_free = torch.cuda.current_stream(self._device).record_event()
        self._futures.append(self._pool.submit(self._send, weight, target, is_free))

    def wait(self) -> None:
        """Everything put so far has arrived."""
        for future in self._futures:
            future.result()
        self._futures.clear()

    def close(self) -> None:
        self.wait()
        if self._pool is not None:
            self._pool.shutdown()

    def _send(self, weight: Weight, target: torch.Tensor, is_free: torch.cuda.Event) -> None:
        stored = _values(weight).view(-1)
        flat = target.view(-1)
        if not hasattr(self._own, "buffer"):
            self._own.buffer = torch.empty(PIECE_BYTES, dtype=torch.uint8, pin_memory=True)
            self._own.stream = torch.cuda.Stream(self._device)
        self._own.stream.wait_event(is_free)
        count = PIECE_BYTES // stored.element_size()
        buffer = self._own.buffer.view(stored.dtype)
        with torch.cuda.stream(self._own.stream):
            for first in range(0, len(stored), count):
                piece = stored[first : first + count]
                buffer[: len(piece)].copy_(piece)  # lets other threads run meanwhile
                flat[first : first + len(piece)].copy_(buffer[: len(piece)], non_blocking=True)
                self._own.stream.synchronize()


def _values(weight: Weight) -> torch.Tensor:
    """The weight as it lies in memory where torch knows the type, else in single precision."""
    stored = STORED_TYPES.get(weight.format)
    if stored is None:
        return torch.from_numpy(np.ascontiguousarray(weight.to_float32()))
    with warnings.catch_warnings():  # that the memory is read-only: nobody writes to it here
        warnings.simplefilter("ignore", UserWarning)
        raw = torch.from_numpy(np.ascontiguousarray(weight.raw)).view(-1)
    # A header of odd length leaves the data of a file off its boundary.
    return raw.view(stored) if raw.data_ptr() % stored.itemsize == 0 else raw.clone().view(stored)
