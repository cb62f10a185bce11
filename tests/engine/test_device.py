"""Where to compute when nobody says, with a driver that is compiled here and answers as NVIDIA's does."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import logging
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pagoda.core.config import CUDA_DEFAULTS, EngineConfig
from pagoda.engine import device
from pagoda.engine.device import Choice, Gpu, choose_device, first_gpu, settled
from pagoda.engine.llm import engine_config

HOPPER = Gpu("NVIDIA H200", (9, 0))
TURING = Gpu("Tesla T4", (7, 5))

DRIVER = """
#include <string.h>
int cuInit(unsigned flags) { return flags == 0 ? INIT : 1; }
int cuDeviceGet(int *device, int ordinal) { *device = 40 + ordinal; return ordinal < COUNT ? 0 : 101; }
int cuDeviceGetName(char *name, int length, int device) { strncpy(name, NAME, length); return device != 40; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    *value = attribute == 75 ? 9 : attribute == 76 ? 3 : -1;
    return device != 40;
}
"""

Driver = Callable[..., str]


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    def build(name: str = "NVIDIA H200", init: int = 0, count: int = 1) -> str:
        source, library = tmp_path / "driver.c", tmp_path / f"libcuda-{init}-{count}.so"
        source.write_text(DRIVER)
        how = [f'-DNAME="{name}"', f"-DINIT={init}", f"-DCOUNT={count}"]
        subprocess.run(["gcc", "-shared", "-fPIC", *how, "-o", library, source], check=True)
        return str(library)

    return build


def test_the_driver_is_asked_for_name_and_capability(driver: Driver):
    assert first_gpu(driver()) == Gpu("NVIDIA H200", (9, 3))


def test_there_is_none_where_the_driver_says_so_or_is_not_there(driver: Driver, tmp_path: Path):
    assert first_gpu(driver(init=100)) is None
    assert first_gpu(driver(count=0)) is None
    assert first_gpu(str(tmp_path / "libcuda.so.1")) is None
    assert first_gpu("libm.so.6") is None  # a library without these names


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """With this GPU, and these packages beside us."""

    def set_up(gpu: Gpu | None, packages: tuple[str, ...] = ("torch", "triton"), knows_cuda: bool = True) -> None:
        def find_spec(name: str) -> Any:
            if name not in packages:
                return None
            spec = importlib.machinery.ModuleSpec(name, None, is_package=True)
            spec.submodule_search_locations = [str(tmp_path / name)]
            return spec

        (tmp_path / "torch" / "lib").mkdir(parents=True)
        if knows_cuda:
            (tmp_path / "torch" / "lib" / "libtorch_cuda.so").touch()
        monkeypatch.setattr(importlib.util, "find_spec", find_spec)
        monkeypatch.setattr(device, "first_gpu", lambda: gpu)

    return set_up


def test_a_gpu_that_serves_is_taken_with_its_own_defaults(machine: Callable[..., None]):
    machine(HOPPER)
    assert choose_device({}) == Choice("cuda", "found NVIDIA H200")
    assert settled({}) == {**CUDA_DEFAULTS, "device": "cuda"}
    config = engine_config("m", {"block_size": 32, "quantization": "fp8"})
    assert config == EngineConfig(model="m", device="cuda", quantization="fp8", **{**CUDA_DEFAULTS, "block_size": 32})


def test_what_is_said_goes_before_what_is_found(machine: Callable[..., None]):
    machine(HOPPER)
    assert engine_config("m", {"device": "cpu"}) == EngineConfig(model="m", device="cpu")


def test_cuda_that_is_said_is_not_doubted(machine: Callable[..., None]):
    machine(None)
    assert engine_config("m", {"device": "cuda", "kv_cache_type": "fp8"}).device == "cuda"


@pytest.mark.parametrize(
    ("name", "value"), [("kernels", "native"), ("compute", "f32"), ("num_threads", 2), ("kv_cache_type", "int8")]
)
def test_settings_of_a_cpu_are_for_a_cpu(machine: Callable[..., None], name: str, value: Any):
    machine(HOPPER)
    assert choose_device({name: value}).device == "cpu" and name in choose_device({name: value}).reason
    assert engine_config("m", {name: value}).device == "cpu"


@pytest.mark.parametrize(
    "neutral", [{"kernels": "auto"}, {"compute": "auto"}, {"num_threads": None}, {"kv_cache_type": "fp8"}]
)
def test_settings_that_say_nothing_of_a_cpu_leave_the_gpu(machine: Callable[..., None], neutral: dict[str, Any]):
    machine(HOPPER)
    assert choose_device(neutral).device == "cuda"


def test_without_a_gpu_nothing_is_said(machine: Callable[..., None], caplog: pytest.LogCaptureFixture):
    machine(None)
    assert choose_device({}) == Choice("cpu", "no GPU found")
    assert not caplog.records


@pytest.mark.parametrize(
    ("gpu", "how", "says"),
    [
        (HOPPER, {"packages": ()}, "torch is not installed; pip install 'pagoda[cuda]'"),
        (HOPPER, {"packages": ("torch",)}, "triton is not installed; pip install 'pagoda[cuda]'"),
        (HOPPER, {"knows_cuda": False}, "built without CUDA; pip install 'pagoda[cuda]'"),
        (TURING, {}, "its compute capability is 7.5, and kernels need 8.0"),
    ],
)
def test_a_gpu_that_stays_idle_is_named_with_the_reason(
    machine: Callable[..., None], caplog: pytest.LogCaptureFixture, gpu: Gpu, how: dict[str, Any], says: str
):
    machine(gpu, **how)
    with caplog.at_level(logging.WARNING):
        choice = choose_device({})
    assert choice.device == "cpu" and choice.reason.startswith(gpu.name) and choice.reason.endswith(says)
    [record] = caplog.records
    assert gpu.name in record.getMessage() and says in record.getMessage()
