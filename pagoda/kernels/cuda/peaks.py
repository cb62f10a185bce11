"""What a GPU can do at most, by torch's own kernels: long reads and copies, large products."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import torch

from pagoda.core.errors import InvalidRequest
from pagoda.kernels.base import Arithmetic
from pagoda.kernels.peaks import Peaks

MEMORY_BYTES = 1 << 30
MATRIX_WIDTH = 8192
NUM_TRIES = 10


def device_name() -> str:
    if not torch.cuda.is_available():
        raise InvalidRequest("device", "'cuda' was asked for, and torch finds no CUDA device here")
    return torch.cuda.get_device_name()


def measure_peaks(
    kinds: Iterable[Arithmetic] = ("bf16", "f32"),
    device: str = "cuda",
    memory_bytes: int = MEMORY_BYTES,
    width: int = MATRIX_WIDTH,
) -> Peaks:
    """The best of some tries each. What it takes for that is given back."""
    target = torch.device(device)
    seconds = _device_seconds if target.type == "cuda" else _host_seconds
    peaks = Peaks(
        _memory_rate(target, memory_bytes, seconds),
        {kind: 2 * width**3 / seconds(_product(kind, target, width)) for kind in kinds},
    )
    if target.type == "cuda":
        torch.cuda.empty_cache()
    return peaks


def _memory_rate(device: torch.device, num_bytes: int, seconds: Callable[[Callable[[], object]], float]) -> float:
    """Whichever is quicker: a sum reads, a copy reads and writes."""
    source = torch.ones(num_bytes // 4, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    total = torch.empty((), dtype=torch.float32, device=device)
    return max(
        num_bytes / seconds(lambda: torch.sum(source, 0, out=total)),
        2 * num_bytes / seconds(lambda: target.copy_(source)),
    )


def _product(kind: Arithmetic, device: torch.device, width: int) -> Callable[[], object]:
    if kind == "fp8":
        return _fp8_product(device, width)
    dtype = torch.float32 if kind == "f32" else torch.bfloat16
    # Numbers that differ: equal ones take less power, and so come out faster than any real product.
    x, y = (torch.randn((width, width), device=device).to(dtype) for _ in range(2))
    out = torch.empty((width, width), dtype=dtype, device=device)
    return lambda: torch.mm(x, y.t(), out=out)


def _fp8_product(device: torch.device, width: int) -> Callable[[], object]:
    """With a scale for each row, as the layers have them."""
    x, y = (torch.randn((width, width), device=device).to(torch.float8_e4m3fn) for _ in range(2))
    rows = torch.ones((width, 1), device=device)
    return lambda: torch._scaled_mm(x, y.t(), scale_a=rows, scale_b=rows.t(), out_dtype=torch.bfloat16)


def _device_seconds(work: Callable[[], object]) -> float:
    """By the device's own clock; the first run is not counted."""
    work()
    best = float("inf")
    for _ in range(NUM_TRIES):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        best = min(best, begin.elapsed_time(end) / 1e3)
    return best


def _host_seconds(work: Callable[[], object]) -> float:
    work()
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
