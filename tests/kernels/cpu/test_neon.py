"""The kernels for 64-bit ARM, built by a cross compiler and run by an emulator, give the bits of the plain ones."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CHECK = Path(__file__).with_name("neon_check.cpp")
LANES = Path(__file__).with_name("lanes_check.cpp")
COMPILER = "aarch64-linux-gnu-g++"
EMULATOR = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64") or ""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"no {COMPILER}"),
    pytest.mark.skipif(not EMULATOR, reason="no qemu-aarch64"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The objects of a build by setup.py, with the flags of every build, and a program `check` of them."""
    folder = tmp_path_factory.mktemp("aarch64")
    command = [sys.executable, "setup.py", "-q", "build_ext", "--plat-name", "linux-aarch64"]
    command += ["--build-lib", str(folder), "--build-temp", str(folder / "objects")]
    linker = f"{COMPILER} -shared"
    tools = {"CC": COMPILER, "CXX": COMPILER, "LDSHARED": linker, "LDCXXSHARED": linker}
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **tools}, capture_output=True, text=True)
    objects = sorted(str(path) for path in (folder / "objects").rglob("*.o"))
    assert done.returncode == 0 and objects, done.stderr
    assert "warning" not in done.stderr.lower() and "no native kernels" not in done.stderr, done.stderr
    warnings = ["-Wall", "-Wextra", "-Werror"]
    compile_it = [COMPILER, "-std=c++17", "-O1", "-ffp-contract=off", *warnings, f"-I{ROOT / 'native'}"]
    for name in ("scalar", "neon"):
        objects.append(str(folder / f"lanes_{name}.o"))
        choice = [f'-DLANES="simd_{name}.h"', f"-DSAY={name}_lanes"]
        subprocess.run([*compile_it, *choice, "-c", str(LANES), "-o", objects[-1]], check=True)
    subprocess.run([*compile_it, "-static", "-pthread", str(CHECK), *objects, "-o", str(folder / "check")], check=True)
    return folder


def run_check(folder: Path, machine: str, *sets: str) -> subprocess.CompletedProcess[str]:
    command = [EMULATOR, "-cpu", machine, str(folder / "check"), *sets]
    return subprocess.run(command, capture_output=True, text=True)


def test_every_instruction_gives_the_bits_of_the_plain_kernels(folder: Path):
    done = run_check(folder, "max", "neon_dot", "neon")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "numbers are the same" in done.stdout


def test_a_machine_without_dot_products_runs_the_others(folder: Path):
    done = run_check(folder, "cortex-a53", "neon_dot")
    assert (done.returncode, done.stdout) == (2, "neon_dot: this machine lacks it\n")
    done = run_check(folder, "cortex-a53", "neon")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_objects_share_nothing_that_was_compiled_for_dot_products(folder: Path):
    tool = COMPILER.replace("g++", "nm")
    for name in ("neon", "neon_dot"):
        (compiled,) = folder.rglob(f"kernels_{name}.o")
        symbols = subprocess.run([tool, "-gC", "--defined-only", compiled], capture_output=True, text=True, check=True)
        names = {line.split(maxsplit=2)[2] for line in symbols.stdout.splitlines()}
        assert names == {f"{name}_kernels()", f"{name}_peaks()", f"{name}_samplers()"}
