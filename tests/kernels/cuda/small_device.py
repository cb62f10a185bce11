"""A device that few programs fill: where the interpreter runs them one after the other, idle ones take time too."""

from __future__ import annotations

import pytest

from pagoda.kernels.cuda import decode_plan
from tests.kernels.cuda.device import DEVICE

PROGRAMS_IN_ALL = 32


@pytest.fixture(autouse=True)
def small_device(monkeypatch: pytest.MonkeyPatch) -> None:
    if DEVICE == "cpu":
        monkeypatch.setattr(decode_plan, "PROGRAMS_IN_ALL", PROGRAMS_IN_ALL)
