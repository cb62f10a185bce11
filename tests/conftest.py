"""Fixtures of every test: real models by name, hypothesis profiles, and the integrity check that follows each test."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol
from weakref import WeakSet

import pytest
from hypothesis import HealthCheck, settings

# A shell that starts us in the background has us ignore Ctrl-C, and every process we start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Without a GPU the kernels of kernels/cuda run in Triton's interpreter, which must be chosen before Triton is imported.
if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# No deadline: two shared cores make the time of one example a matter of luck. In CI the examples are always the same.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


class ChecksIntegrity(Protocol):
    """A resource owner that can tell whether its books are in order."""

    def check_integrity(self) -> None: ...


watched: WeakSet[ChecksIntegrity] = WeakSet()
"""Every living resource owner a test has made. Weak, so that being watched keeps nothing alive."""

known_broken: WeakSet[ChecksIntegrity] = WeakSet()
"""One failure is enough: an owner may outlive the test that broke it, in a wider fixture."""

MOST_LIVE_MANAGERS = 32  # beyond these it is cheaper to look for dead ones than to check them again and again


def owners() -> list[ChecksIntegrity]:
    """Those that are watched, and every page cache there is."""
    kv_cache = sys.modules.get("pagoda.kv_cache")
    if kv_cache is None:
        return list(watched)
    if len(kv_cache.live_managers()) > MOST_LIVE_MANAGERS:
        gc.collect()
    return list(watched.union(kv_cache.live_managers()))


@pytest.fixture(autouse=True)
def integrity() -> Iterator[WeakSet[ChecksIntegrity]]:
    """An integrity check that runs after every test, over all owners that are still alive."""
    yield watched
    for owner in owners():
        if owner in known_broken:
            continue
        try:
            owner.check_integrity()
        except BaseException:
            known_broken.add(owner)
            raise


@pytest.fixture(autouse=True, scope="session")
def no_gpu_unless_asked_for() -> Iterator[None]:
    """Tests that say no device mean the CPU, on a machine with a GPU too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pagoda.engine.device.first_gpu", lambda: None)
        yield


def pulled(name: str) -> Path:
    """The file of a model in the user's store (or PAGODA_HOME), fetched by the first test that needs it."""
    from pagoda.weights.store import ensure_model

    return ensure_model(name)


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    return pulled("smollm2")


@pytest.fixture(scope="session")
def gemma3_path() -> Path:
    return pulled("gemma3-270m")
