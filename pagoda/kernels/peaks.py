"""What a device can do at most, measured on it: the ceilings of a roofline."""

from __future__ import annotations

import msgspec

from pagoda.kernels.base import Arithmetic


class Peaks(msgspec.Struct, frozen=True):
    """A product and its sum are two operations."""

    bytes_per_second: float
    """Read from memory."""
    operations_per_second: dict[Arithmetic, float]
