"""An engine on a model of random weights, for offline runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pagoda import LLM
from pagoda.bench.device import Device
from pagoda.kernels.peaks import Peaks
from tests.fakes.config_folder import write_config

MakeLLM = Callable[..., LLM]
SETTINGS = {"load_format": "dummy", "max_num_seqs": 4, "max_num_batched_tokens": 32, "num_threads": 1}


@pytest.fixture
def make_llm(tmp_path: Path) -> Iterator[MakeLLM]:
    made: list[LLM] = []

    def make(**settings: Any) -> LLM:
        made.append(LLM(write_config(tmp_path / "random"), **SETTINGS | settings))
        return made[-1]

    yield make
    for llm in made:
        llm.close()


@pytest.fixture
def device() -> Device:
    """So slow that no run is near its ceiling."""
    return Device("a slow machine", Peaks(1e6, {"f32": 1e6, "int8": 4e6}))
