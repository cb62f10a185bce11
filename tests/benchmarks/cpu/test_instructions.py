"""Reading what callgrind writes, in a text that has its abbreviations."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.cpu.instructions import by_kernel, difference, read_callgrind, short_name

PROFILE = """\
version: 1
events: Ir

ob=(1) /somewhere/libpagoda.so.1
fl=(1) ???
fn=(1) linear_groups(Weight const&)
0 100
cob=(2) /usr/bin/python
cfn=(2) main
calls=3 0
0 5000
0 7

ob=(2)
fn=(2)
0 40
cob=(1)
cfn=(3) (anonymous namespace)::rope<16>(int)
calls=1 0
0 9

ob=(1)
fn=(3)
0 9
totals: 156
"""


def test_calls_belong_to_the_callee() -> None:
    assert read_callgrind(PROFILE.splitlines()) == Counter(
        {
            ("/somewhere/libpagoda.so.1", "linear_groups(Weight const&)"): 107,
            ("/usr/bin/python", "main"): 40,
            ("/somewhere/libpagoda.so.1", "(anonymous namespace)::rope<16>(int)"): 9,
        }
    )


def test_differences_are_a_token() -> None:
    more, less = Counter({("a", "f"): 30, ("a", "g"): 5}), Counter({("a", "f"): 10, ("a", "g"): 5})
    assert difference(more, less, 4) == {("a", "f"): 5.0}


def test_everything_but_the_kernels_is_one_sum() -> None:
    counts = {("/x/lib.so", "f(int)"): 1.0, ("/x/lib.so", "f(long)"): 2.0, ("/y", "g"): 3.0, ("/z", "h"): 4.0}
    assert by_kernel(counts, "lib.so") == {"f": 3.0, "Python and other libraries": 7.0}


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("run_program(Program const&)", "run_program"),
        ("void (anonymous namespace)::mix<10>(float const*, long)", "mix"),
        ("void (anonymous namespace)::tile<Nibbles, 4, 2>(Rows const&)", "tile<Nibbles>"),
    ],
)
def test_short_names(name: str, short: str) -> None:
    assert short_name(name) == short
