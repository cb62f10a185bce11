"""Where to compute when nobody says: on the GPU, if there is one that serves.

The driver is asked for it, so that a machine without a GPU never waits for torch.
"""

from __future__ import annotations

import ctypes
import importlib.util
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pagoda.core.config import device_defaults

DRIVER = "libcuda.so.1"
# Of the driver's API: what a device is asked for.
_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76
_NAME_BYTES = 256
# The kernels multiply in bfloat16.
LEAST_CAPABILITY = (8, 0)
INSTALL = "pip install 'pagoda[cuda]'"
# Settings that speak of a CPU, with the values that do not.
CPU_SETTINGS: dict[str, tuple[Any, ...]] = {
    "kernels": ("auto",),
    "compute": ("auto",),
    "num_threads": (None,),
    "kv_cache_type": ("auto", "fp8"),
}

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Gpu:
    name: str
    capability: tuple[int, int]


class Choice(NamedTuple):
    device: Literal["cpu", "cuda"]
    reason: str


def settled(settings: Mapping[str, Any]) -> dict[str, Any]:
    """These settings of an engine with the device chosen, and its own defaults for what was not said."""
    device = settings.get("device", "auto")
    if device == "auto":
        device = choose_device(settings).device
    return device_defaults(device) | dict(settings) | {"device": device}


def choose_device(settings: Mapping[str, Any]) -> Choice:
    """For `device="auto"`. Says in the log if a GPU is here and stays idle."""
    for name, neutral in CPU_SETTINGS.items():
        if name in settings and settings[name] not in neutral:
            return Choice("cpu", f"{name} is said, which is a CPU's")
    gpu = first_gpu()
    if gpu is None:
        return Choice("cpu", "no GPU found")
    obstacle = _obstacle(gpu)
    if obstacle is None:
        return Choice("cuda", f"found {gpu.name}")
    logger.warning("computing on the CPU, although there is a GPU (%s): %s", gpu.name, obstacle)
    return Choice("cpu", f"{gpu.name}: {obstacle}")


def first_gpu(driver: str = DRIVER) -> Gpu | None:
    """As the driver counts them, which leaves out what CUDA_VISIBLE_DEVICES hides. Takes no memory on the device."""
    try:
        cuda = ctypes.CDLL(driver)
        device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        name = ctypes.create_string_buffer(_NAME_BYTES)
        failed = (
            cuda.cuInit(0)
            or cuda.cuDeviceGet(ctypes.byref(device), 0)
            or cuda.cuDeviceGetName(name, _NAME_BYTES, device)
            or cuda.cuDeviceGetAttribute(ctypes.byref(major), _CAPABILITY_MAJOR, device)
            or cuda.cuDeviceGetAttribute(ctypes.byref(minor), _CAPABILITY_MINOR, device)
        )
    except (OSError, AttributeError):  # no driver, or none that we know
        return None
    if failed:
        return None
    return Gpu(name.value.decode(errors="replace"), (major.value, minor.value))


def _obstacle(gpu: Gpu) -> str | None:
    """Why it cannot be used, with the way out if there is one."""
    if gpu.capability < LEAST_CAPABILITY:
        least, own = (".".join(map(str, version)) for version in (LEAST_CAPABILITY, gpu.capability))
        return f"its compute capability is {own}, and kernels need {least}"
    # Neither is imported for it, which would take seconds.
    torch, triton = importlib.util.find_spec("torch"), importlib.util.find_spec("triton")
    if torch is None or triton is None:
        return f"{'torch' if torch is None else 'triton'} is not installed; {INSTALL}"
    folders = torch.submodule_search_locations or []
    if not any(Path(folder, "lib", "libtorch_cuda.so").exists() for folder in folders):
        return f"the torch that is installed was built without CUDA; {INSTALL}"
    return None
