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
def fetch(pointers):
    """Ask for the cache lines at the pointers."""
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.u32 $0, 0;",
        "=r,l",
        [pointers.to(tl.int64)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def fetch_rows(base, offsets, is_held, WIDTH: tl.constexpr):
    """The cache lines of rows of WIDTH numbers, a power of two; of a row that is not held, those of the first row."""
    LINE: tl.constexpr = 8 * CACHE_LINE // base.dtype.element_ty.primitive_bitwidth
    lines = tl.arange(0, max(1, WIDTH // LINE)) * LINE
    fetch(base + tl.where(is_held, offsets, 0)[:, None] + lines[None, :])


@triton.jit
def wait_and_fetch(pointers):
    """Ask for the cache lines at the pointers, let the next kernel start, wait for the one before."""
    fetch(pointers)
    cuda.gdc_launch_dependents()
    cuda.gdc_wait()
