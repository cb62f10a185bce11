"""setup.py builds the library where it can, and says so and goes on where it cannot."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pagoda.kernels.cpu.library import LIBRARY

ROOT = Path(__file__).parents[3]
TARGET = Path("pagoda", "kernels", "cpu", LIBRARY.name)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "native", tmp_path / "native")
    (tmp_path / TARGET).parent.mkdir(parents=True)
    return tmp_path


def build(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "setup.py", "-q", *arguments]
    return subprocess.run(command, cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True)


@pytest.mark.parametrize(
    "arguments", [("build_ext", "--inplace"), ("build",), ("bdist_wheel",), ("editable_wheel",)], ids=" ".join
)
def test_without_a_compiler_the_build_succeeds_and_says_what_is_missing(copy: Path, arguments: tuple[str, ...]):
    done = build(copy, *arguments, CC="/bin/false", CXX="/bin/false")
    assert done.returncode == 0, done.stderr
    assert "pagoda: no native kernels, the NumPy ones will be used" in done.stderr
    assert not list(copy.rglob(LIBRARY.name))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="no compiler")
def test_with_a_compiler_the_library_lies_beside_the_package_and_loads(copy: Path):
    done = build(copy, "build_ext", "--inplace")
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr.lower(), done.stderr
    loaded = ctypes.CDLL(str(copy / TARGET))
    assert loaded.pagoda_supports(b"scalar")
    # Nothing of Python in it: one build serves every version.
    linked = subprocess.run(["ldd", str(copy / TARGET)], capture_output=True, text=True).stdout
    assert "python" not in linked
    # An inline function of the standard library, compiled for AVX-512, could be linked in everybody's place.
    for name in ("avx2", "avx512", "neon", "neon_dot"):
        for compiled in copy.rglob(f"kernels_{name}.o"):
            symbols = subprocess.run(["nm", "-gC", "--defined-only", str(compiled)], capture_output=True, text=True)
            names = {line.split(maxsplit=2)[2] for line in symbols.stdout.splitlines()}
            assert names <= {f"{name}_kernels()", f"{name}_peaks()", f"{name}_samplers()"}  # none of another machine
