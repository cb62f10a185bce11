"""Kernels of every instruction set and team size, from the library in the tree or the one named on the command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pagoda.kernels.cpu import CpuKernels, library, memory, weights


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--native-library", type=Path, help="test this build of the native kernels")
    parser.addoption("--best-set", action="store_true", help="only the best instruction set of the machine")
    parser.addoption("--teams", type=int, nargs="+", default=[1, 2, 3], help="sizes of the team of threads")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--native-library", default=None)
    if path is not None:
        library.LIBRARY = path.resolve(strict=True)
        library.load_library.cache_clear()
        if not library.available_instruction_sets():
            raise pytest.UsageError(f"--native-library: {path} cannot be loaded")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    sets = library.available_instruction_sets()
    if metafunc.config.getoption("--best-set", default=False):
        sets = sets[:1]
    if "kernels" in metafunc.fixturenames:
        teams = metafunc.config.getoption("--teams", default=[1, 2, 3])
        metafunc.parametrize("kernels", [(name, team) for name in sets for team in teams], indirect=True, ids=team_id)
    elif "instruction_set" in metafunc.fixturenames:
        metafunc.parametrize("instruction_set", sets)


def team_id(choice: tuple[str, int]) -> str:
    return f"{choice[0]}-{choice[1]}"


@pytest.fixture
def kernels(request: pytest.FixtureRequest) -> CpuKernels:
    instruction_set, num_threads = request.param
    return CpuKernels(num_threads, instruction_set)


def exact_bytes(num_bytes: int) -> np.ndarray:
    """Not a byte more than was asked for, so that a sanitizer sees the first beyond; NaN until something is written."""
    return np.full(num_bytes, 0xFF, np.uint8)


@pytest.fixture(autouse=True)
def poisoned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "aligned_bytes", exact_bytes)
    monkeypatch.setattr(weights, "aligned_bytes", exact_bytes)


@pytest.fixture(autouse=True)
def built(request: pytest.FixtureRequest) -> Iterator[None]:
    if not library.available_instruction_sets() and "without_library" not in request.fixturenames:
        pytest.skip("the native kernels were not built")
    yield
