from __future__ import annotations

import sys

import pytest

from pagoda.bench import device
from pagoda.bench.device import measure_device
from pagoda.core.config import EngineConfig
from pagoda.core.errors import InvalidRequest
from pagoda.kernels.cpu import peaks


def test_a_cpu_is_measured_with_the_threads_of_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(peaks, "measure_peaks", lambda *arguments: asked.append(arguments))
    monkeypatch.setattr(device, "available_bytes", lambda: 1 << 20)
    assert "3 of" in measure_device(EngineConfig(model="m", num_threads=3)).name
    assert asked == [(3, 1 << 18)], "a quarter of what is free at most"


def test_a_gpu_without_its_libraries_or_itself_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    if not torch.cuda.is_available():
        with pytest.raises(InvalidRequest, match="device: 'cuda' was asked for, and torch finds no CUDA device"):
            measure_device(EngineConfig(model="m", device="cuda"))
    monkeypatch.setitem(sys.modules, "pagoda.kernels.cuda.peaks", None)
    with pytest.raises(InvalidRequest, match=r"device: 'cuda' needs the extra pagoda\[cuda\]"):
        measure_device(EngineConfig(model="m", device="cuda"))
