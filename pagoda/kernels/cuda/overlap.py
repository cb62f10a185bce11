"""Kernels that start before the one ahead of them has ended (programmatic dependent launch).

Such a kernel must wait before it touches anything that another kernel of the step writes. Until then it may fetch what
never changes, its weights, into the second cache.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import cuda

CACHE_LINE = tl.constexpr(128)  # bytes
# The interpreter runs one kernel after the other and knows none of these words.
LAUNCHES_EARLY = not triton.knobs.runtime.interpret
EARLY_LAUNCH = {"launch_pdl": True} if LAUNCHES_EARLY else {}


@triton.jit
def launch_dependents(EARLY: tl.constexpr):
    """The next kernel may start; it sees nothing of this one until it waits for it."""
    if EARLY:
        cuda.gdc_launch_dependents()


@triton.jit
def wait_for_earlier(EARLY: tl.constexpr):
    """Everything that kernels before this one wrote is there."""
    if EARLY:
        cuda.gdc_wait()


@triton.jit
def wait_and_fetch(pointers):
    """Ask for the cache lines at the pointers, let the next kernel start, wait for the one before."""
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.u32 $0, 0;",
        "=r,l",
        [pointers.to(tl.int64)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )
    cuda.gdc_launch_dependents()
    cuda.gdc_wait()
