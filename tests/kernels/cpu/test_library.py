"""The records of Python and those of C++ are the same bytes."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pagoda.kernels.cpu import library
from pagoda.kernels.cpu.recorder import Operation

ROOT = Path(__file__).parents[3]
HEADER = (ROOT / "native" / "program.h").read_text(encoding="utf-8")
RECORDS = [
    *(library.PackedWeight, library.Instruction, library.Buffer, library.Vector, library.Rope),
    *(library.LayerPages, library.PageTables, library.Program, library.Step, library.Limits),
]


@pytest.mark.skipif(shutil.which("g++") is None, reason="no compiler")
def test_every_field_has_the_place_and_size_that_the_compiler_gives_it(tmp_path: Path):
    lines = ["#include <cstddef>", "#include <cstdio>", '#include "program.h"', "int main() {"]
    expected = []
    for record in RECORDS:
        name = record.__name__
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        expected.append(f"{name} {ctypes.sizeof(record)}")
        for field, *_ in record._fields_:
            lines.append(f'printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), sizeof({name}::{field}));')
            place = getattr(record, field)
            expected.append(f"{name}.{field} {place.offset} {place.size}")
    source = tmp_path / "layout.cpp"
    source.write_text("\n".join([*lines, "}"]), encoding="utf-8")
    target = tmp_path / "layout"
    subprocess.run(["g++", "-std=c++17", f"-I{ROOT / 'native'}", str(source), "-o", str(target)], check=True)
    printed = subprocess.run([str(target)], check=True, capture_output=True, text=True).stdout
    assert printed.splitlines() == expected


def test_every_operation_has_its_number():
    numbers = {name: int(number) for name, number in re.findall(r"OP_(\w+) = (\d+)", HEADER)}
    assert numbers == {operation.name: operation.value for operation in Operation}


def test_the_best_instruction_set_comes_first_and_plain_code_always_runs():
    sets = library.available_instruction_sets()
    assert sets == tuple(name for name in library.INSTRUCTION_SETS if name in sets)
    assert sets[-1] == "scalar"


@pytest.mark.parametrize("name", ["", "avx", "AVX2", "NEON", "neon_", "scalar "])
def test_an_instruction_set_that_is_not_there_is_not_supported(name: str):
    assert not library.load_library().pagoda_supports(name.encode())
