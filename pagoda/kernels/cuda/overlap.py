"""Kernels that start before the one ahead of them has ended (programmatic dependent launch).

Such a kernel must wait before it touches anything that another kernel of the step writes. Until then it may fetch what
never changes, its weights, into the second cache.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import cuda

CACHE_LINE = tl.constexpr(128)  # bytes


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
