"""What launches share."""

from __future__ import annotations

import triton

# A product and a sum may become one instruction. Triton up to 3.9 takes that for granted, later ones ask; where it must
# not be, a launch says so itself.
triton.knobs.language.default_fp_fusion = True

MAX_WARPS = 16
ELEMENTS_PER_WARP = 512


def block_of(width: int) -> int:
    """The power of two that holds so many elements; Triton's own word for it takes ten times as long."""
    return 1 << max(0, width - 1).bit_length()


def warps_for(block: int) -> int:
    """Enough warps that a thread holds about sixteen elements of the block."""
    return max(1, min(MAX_WARPS, block // ELEMENTS_PER_WARP))
