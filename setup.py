"""Builds the native CPU kernels beside the package. Without a C++ compiler Pagoda still installs and runs on NumPy."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

NATIVE = Path("native")
# No contraction: the compiler fuses only what the source fuses, so every instruction set gives the same bits.
COMMON = ["-std=c++17", "-ffp-contract=off", "-g0", "-fPIC", "-pthread", "-Wall", "-Wextra"]
# A build under a sanitizer says how far it wants to be optimized: at -O3 it takes the compiler many minutes.
COMMON += [] if "-O" in os.environ.get("CXXFLAGS", "") else ["-O3"]
# Each file is compiled for one instruction set; which of them runs is decided on the machine, at run time.
INSTRUCTION_SETS = {
    "x86_64": {
        "kernels_avx2.cpp": ["-mavx2", "-mfma", "-mf16c"],
        "kernels_avx512.cpp": [
            *("-mavx2", "-mfma", "-mf16c", "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq"),
            "-mavx512vnni",
        ],
    },
    # GCC schedules before it gives out registers, and then spills: 534 instructions for 128 dot products, else 343.
    "aarch64": {
        "kernels_neon.cpp": ["-fno-schedule-insns"],
        "kernels_neon_dot.cpp": ["-fno-schedule-insns", "-march=armv8.2-a+dotprod"],
    },
}


class BuildNative(build_ext):
    """A plain shared library: it knows nothing of Python, so one build serves every version."""

    def get_ext_filename(self, ext_name: str) -> str:
        return str(Path(*ext_name.split("."))) + ".so.1"  # so that nobody takes it for a module of Python

    def get_export_symbols(self, ext: Extension) -> list[str]:
        return []

    def build_extension(self, ext: Extension) -> None:
        try:
            self._build(ext)
        except Exception as error:  # any failure of the compiler leaves a slower but whole installation
            print(f"pagoda: no native kernels, the NumPy ones will be used: {error}", file=sys.stderr)

    def _build(self, ext: Extension) -> None:
        # Kernels of another machine compile to nothing.
        flags = INSTRUCTION_SETS.get(self.plat_name.rpartition("-")[2], {})

        def build(source: str) -> list[str]:
            return self.compiler.compile(
                [source],
                output_dir=self.build_temp,
                include_dirs=[str(NATIVE)],
                extra_postargs=COMMON + flags.get(Path(source).name, []),
                depends=ext.depends,
            )

        # The kernels of an instruction set take the compiler a minute: all of them at once, the longest first.
        sources = sorted(ext.sources, key=lambda source: -len(flags.get(Path(source).name, [])))
        # The folder of the objects is there before two compilers want to make it at once.
        Path(self.build_temp, NATIVE).mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = [name for names in pool.map(build, sources) for name in names]
        target = Path(self.get_ext_fullpath(ext.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        self.compiler.link_shared_object(objects, str(target), extra_postargs=["-pthread"], target_lang="c++")


setup(
    ext_modules=[
        Extension(
            "pagoda.kernels.cpu.libpagoda",
            sources=[str(path) for path in sorted(NATIVE.glob("*.cpp"))],
            depends=[str(path) for path in sorted([*NATIVE.glob("*.h"), *NATIVE.glob("*.inc")])],
            language="c++",
            optional=True,  # a build in place copies what was built; there may be nothing
        )
    ],
    cmdclass={"build_ext": BuildNative},
)
