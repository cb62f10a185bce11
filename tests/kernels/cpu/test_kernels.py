"""Where the native kernels cannot run a model, it is said why, and NumPy computes in their place."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest

from pagoda.core.config import EngineConfig
from pagoda.core.errors import InvalidRequest
from pagoda.engine.build import choose_kernels
from pagoda.kernels.base import Compute
from pagoda.kernels.cpu import CpuKernels, library, why_unavailable
from pagoda.models import Model
from pagoda.weights.tensor import QuantizedTensor
from tests.kernels.cpu.blocks import random_weight
from tests.kernels.cpu.families import make_family
from tests.kernels.reference.dense_weight import DenseWeight

STORED = [("Q8_0", "int8", "int8"), ("Q8_0", "f32", "f32"), ("Q4_K", "int8", "int8"), ("BF16", "int8", "f32")]


@cache
def llama() -> Model:
    return make_family("llama", Path(mkdtemp()))


@pytest.fixture(params=["missing", "damaged"])
def without_library(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    path = tmp_path / "libpagoda.so"
    if request.param == "damaged":
        path.write_bytes(b"\x7fELF and nothing more")
    monkeypatch.setattr(library, "LIBRARY", path)
    library.load_library.cache_clear()
    yield
    monkeypatch.undo()
    library.load_library.cache_clear()


def test_without_the_library_there_is_one_warning_and_numpy(without_library: None, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING):
        assert choose_kernels(EngineConfig(model="x"), llama()) is None
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "NumPy" in caplog.text and "not built" in caplog.text and "compiler" in caplog.text


def test_without_the_library_asking_for_it_is_one_clear_error(without_library: None):
    with pytest.raises(InvalidRequest, match="kernels.*not built") as error:
        choose_kernels(EngineConfig(model="x", kernels="native"), llama())
    assert "\n" not in str(error.value)


def test_numpy_asked_for_is_numpy_without_a_word(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.DEBUG):
        assert choose_kernels(EngineConfig(model="x", kernels="reference"), llama()) is None
    assert not caplog.records


@pytest.mark.parametrize("choice", ["auto", "native"])
def test_where_they_can_be_used_they_are(choice: str, caplog: pytest.LogCaptureFixture):
    chosen = choose_kernels(EngineConfig(model="x", kernels=choice, num_threads=2), llama())
    assert isinstance(chosen, CpuKernels) and chosen.num_threads == 2
    assert chosen.instruction_set == library.available_instruction_sets()[0]
    assert not caplog.records


def test_the_engine_says_why_it_falls_back(caplog: pytest.LogCaptureFixture):
    assert choose_kernels(EngineConfig(model="x", block_size=8), llama()) is None
    assert "block_size of 16, not 8" in caplog.text
    with pytest.raises(InvalidRequest, match="kernels.*block_size of 16, not 32"):
        choose_kernels(EngineConfig(model="x", block_size=32, kernels="native"), llama())


@pytest.mark.parametrize(
    ("page_size", "head_dim", "weight", "reason"),
    [
        (8, 64, random_weight("F32", 4, 4), "block_size of 16, not 8"),
        (16, 20, random_weight("F32", 4, 4), "heads in steps of 16, not 20"),
        (16, 64, QuantizedTensor("w", "I8", (4, 4), np.zeros((4, 4), np.uint8)), "no weights of format I8"),
        (16, 64, QuantizedTensor("w", "F8_E4M3", (4, 4), np.zeros((4, 4), np.uint8)), "format F8_E4M3"),
        (16, 64, DenseWeight(np.zeros(40)), "norms in steps of 16, not 40"),
    ],
)
def test_each_obstacle_is_named(page_size: int, head_dim: int, weight: QuantizedTensor, reason: str):
    good = [random_weight("Q4_K", 7, 256), DenseWeight(np.zeros(48))]
    assert why_unavailable(16, 64, good) == ""
    assert reason in why_unavailable(page_size, head_dim, [*good, weight])


def test_one_thread_for_each_core_unless_told_otherwise():
    assert CpuKernels().num_threads >= 1
    assert CpuKernels(3).num_threads == 3


@pytest.mark.parametrize(("format_name", "compute", "arithmetic"), STORED)
def test_what_a_weight_takes_is_what_is_taken(format_name: str, compute: Compute, arithmetic: str):
    kernels = CpuKernels(1, compute=compute)
    weight = random_weight(format_name, 48, 256)
    kernels.prepare(weight)
    assert kernels.stored(weight) == (kernels.num_bytes(), arithmetic)
    norm = DenseWeight(np.ones(32, np.float32))
    assert kernels.stored(norm) == (4 * 32, "f32")
