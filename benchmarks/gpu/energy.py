"""What a run takes from the socket: a card at its power limit is as quick as it is frugal."""

from __future__ import annotations

import ctypes

# The driver brings its count up to date several times a second: what is shorter says nothing.
SHORTEST_SECONDS = 0.5


class EnergyMeter:
    """The driver's own count of joules, where it keeps one."""

    def __init__(self, device: int = 0) -> None:
        self._library: ctypes.CDLL | None = None
        self._device = ctypes.c_void_p()
        try:
            library = ctypes.CDLL("libnvidia-ml.so.1")
            is_found = library.nvmlInit_v2() == 0
            is_found = is_found and library.nvmlDeviceGetHandleByIndex_v2(device, ctypes.byref(self._device)) == 0
        except (OSError, AttributeError):
            return
        if is_found:
            self._library = library

    def joules(self) -> float | None:
        """Since the driver was loaded."""
        count = ctypes.c_ulonglong()
        if self._library is None:
            return None
        status = self._library.nvmlDeviceGetTotalEnergyConsumption(self._device, ctypes.byref(count))
        return count.value / 1e3 if status == 0 else None


def watts(before: float | None, after: float | None, seconds: float) -> str:
    if before is None or after is None or seconds < SHORTEST_SECONDS:
        return ""
    return f"{(after - before) / seconds:.0f}"
