"""Sizes that launches share."""

from __future__ import annotations

MAX_WARPS = 16
ELEMENTS_PER_WARP = 512


def block_of(width: int) -> int:
    """The power of two that holds so many elements; Triton's own word for it takes ten times as long."""
    return 1 << max(0, width - 1).bit_length()


def warps_for(block: int) -> int:
    """Enough warps that a thread holds about sixteen elements of the block."""
    return max(1, min(MAX_WARPS, block // ELEMENTS_PER_WARP))
