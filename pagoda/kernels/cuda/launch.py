"""What launches share: sizes, and kernels that begin before the one before them has ended."""

from __future__ import annotations

import triton
import triton.language as tl

MAX_WARPS = 16
ELEMENTS_PER_WARP = 512
# A kernel launched with `launch_pdl` may start as soon as the one before it says so, and must wait before it reads
# what that one writes. The interpreter runs one kernel after the other and knows neither word.
LAUNCHES_EARLY = not triton.knobs.runtime.interpret
EARLY_LAUNCH = {"launch_pdl": True} if LAUNCHES_EARLY else {}


def block_of(width: int) -> int:
    """The power of two that holds so many elements."""
    return 1 << max(0, width - 1).bit_length()


def warps_for(block: int) -> int:
    """Enough warps that a thread holds about sixteen elements of the block."""
    return max(1, min(MAX_WARPS, block // ELEMENTS_PER_WARP))


@triton.jit
def launch_dependents(EARLY: tl.constexpr):
    """The next kernel may start; it sees nothing of this one until it waits for it."""
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def wait_for_earlier(EARLY: tl.constexpr):
    """Everything that kernels before this one wrote is there."""
    if EARLY:
        tl.extra.cuda.gdc_wait()
