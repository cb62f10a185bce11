"""The device that an offline run is on: what it is called, and what it can do at most."""

from __future__ import annotations

import os
import platform

import msgspec

from pagoda.core.config import EngineConfig
from pagoda.core.errors import InvalidRequest
from pagoda.executor.memory import available_bytes
from pagoda.kernels.base import Arithmetic
from pagoda.kernels.peaks import Peaks


class Device(msgspec.Struct, frozen=True):
    name: str
    peaks: Peaks


def measure_device(config: EngineConfig) -> Device:
    """Before the engine is built, while its memory is still free."""
    if config.device == "cuda":
        return _measure_cuda(config)
    from pagoda.kernels.cpu.library import available_instruction_sets
    from pagoda.kernels.cpu.peaks import MEMORY_BYTES, measure_peaks

    num_threads = config.num_threads or len(os.sched_getaffinity(0))
    kernels = (*available_instruction_sets(), "numpy")[0]
    name = f"{platform.machine()} ({kernels}), {num_threads} of {os.cpu_count()} cores"
    return Device(name, measure_peaks(num_threads, min(MEMORY_BYTES, available_bytes() // 4)))


def _measure_cuda(config: EngineConfig) -> Device:
    try:
        from pagoda.kernels.cuda.peaks import device_name, measure_peaks  # brings torch
    except ImportError as error:
        raise InvalidRequest("device", f"'cuda' needs the extra pagoda[cuda]: {error}") from None

    kinds: list[Arithmetic] = ["bf16", "f32"]
    if config.quantization == "fp8":
        kinds.append("fp8")
    return Device(device_name(), measure_peaks(kinds))
