"""A Hopper GPU that is not there: launches build their kernel for it and go no further.

To be imported before any kernel, in a process where none is interpreted.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import CompiledKernel
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from pagoda.kernels.cuda.quick_launch import QuickKernel

HOPPER = GPUTarget("cuda", 90, 32)
OBJECT_DUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"


@dataclass(frozen=True)
class Built:
    """A kernel as the device would run it. `stack_bytes` a thread keeps in memory, for want of registers."""

    name: str
    num_warps: int
    num_registers: int
    stack_bytes: int
    shared_bytes: int


class AbsentDevice:
    """What Triton asks of its driver before it builds a kernel."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, _device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return HOPPER


def kernels_of(launch: Callable[[], Any]) -> list[CompiledKernel]:
    """What a piece of code would have launched, in order, and with the options of its launches."""
    kernels: list[CompiledKernel] = []

    def build(self: JITFunction[Any], grid: Any) -> Callable[..., None]:
        return lambda *arguments, **named: kernels.append(self.warmup(*arguments, grid=grid, **named))

    def build_quickly(self: QuickKernel, grid: Any) -> Callable[..., None]:
        return lambda *arguments, **named: self._kernel[grid](*arguments, **named)

    before = JITFunction.__getitem__, QuickKernel.__getitem__
    JITFunction.__getitem__, QuickKernel.__getitem__ = build, build_quickly  # type: ignore[method-assign,assignment]
    try:
        launch()
    finally:
        JITFunction.__getitem__, QuickKernel.__getitem__ = before  # type: ignore[method-assign]
    return kernels


def measured(kernel: CompiledKernel) -> Built:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        command = [str(OBJECT_DUMP), "-res-usage", file.name]
        usage = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", usage)
    assert found is not None, usage
    meta = kernel.metadata
    return Built(meta.name, meta.num_warps, int(found[1]), int(found[2]), meta.shared)


assert os.environ.get("TRITON_INTERPRET", "0") == "0", "interpreted kernels are not built"
driver.set_active(AbsentDevice())
