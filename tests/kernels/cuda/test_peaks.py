from __future__ import annotations

from pagoda.kernels.cuda.peaks import measure_peaks
from tests.kernels.cuda.device import DEVICE


def test_a_device_has_its_peaks() -> None:
    found = measure_peaks(("bf16", "f32"), DEVICE, memory_bytes=1 << 20, width=64)
    assert set(found.operations_per_second) == {"bf16", "f32"}
    assert found.bytes_per_second > 1e7 and min(found.operations_per_second.values()) > 1e6
