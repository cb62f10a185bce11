"""The native kernels on NumPy arrays: a forward pass is recorded and run as one program."""

from __future__ import annotations

from pagoda.kernels.cpu.kernels import CpuKernels, why_unavailable
from pagoda.kernels.cpu.recorder import Recorder
from pagoda.kernels.cpu.weights import packed_bytes

__all__ = ["CpuKernels", "Recorder", "packed_bytes", "why_unavailable"]
