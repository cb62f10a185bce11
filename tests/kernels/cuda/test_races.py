"""That races are seen, and what is no race is not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from pagoda.kernels.cuda import overlap
from tests.kernels.cuda.races import noting

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are interpreted here alone")
NUMBERS = 8


@pytest.fixture(autouse=True)
def races() -> None:
    """Those that are found here are meant."""


@triton.jit
def _write(out):
    tl.store(out + tl.arange(0, 8), 1)


@triton.jit
def _copy_soon(out, numbers):
    overlap.launch_dependents(True)
    values = tl.load(numbers + tl.arange(0, 8))
    overlap.wait_for_earlier(True)
    tl.store(out + tl.arange(0, 8), values)


@triton.jit
def _copy_duly(out, numbers):
    overlap.launch_dependents(True)
    overlap.wait_for_earlier(True)
    tl.store(out + tl.arange(0, 8), tl.load(numbers + tl.arange(0, 8)))


@triton.jit
def _copy_and_let_go_late(out, numbers):
    overlap.wait_for_earlier(True)
    overlap.launch_dependents(True)
    tl.store(out + tl.arange(0, 8), tl.load(numbers + tl.arange(0, 8)))


@triton.jit
def _write_soon(out):
    tl.store(out + tl.arange(0, 8), 2)
    overlap.wait_for_earlier(True)


@triton.jit
def _never_waits(out):
    overlap.launch_dependents(True)


def found(*launches: tuple[Any, tuple[int, ...]]) -> list[str]:
    """Of kernels one after the other, on some of four tensors."""
    tensors = [torch.zeros(NUMBERS, dtype=torch.int32) for _ in range(4)]
    with noting() as noted:
        for kernel, places in launches:
            early = {} if kernel is _write else {"launch_pdl": True}
            kernel[(1,)](*(tensors[place] for place in places), **early)
    return noted.found


def test_who_waits_first_meets_nobody():
    assert found((_write, (0,)), (_copy_duly, (1, 0)), (_copy_duly, (2, 1))) == []


def test_who_reads_before_waiting_meets_the_one_ahead():
    told = "_copy_soon reads before it waits what _write writes"
    assert found((_write, (0,)), (_copy_soon, (1, 0))) == [told]


def test_and_those_ahead_of_it_that_it_did_not_wait_for_before_it_let_go():
    told = "_copy_soon reads before it waits what _copy_duly writes"
    chain = ((_copy_duly, (1, 0)), (_copy_duly, (3, 0)))
    assert found((_write, (0,)), *chain, (_copy_soon, (2, 1))) == [told]
    last = (_copy_and_let_go_late, (3, 0))
    assert found((_write, (0,)), chain[0], last, (_copy_soon, (2, 1))) == []
    assert found((_write, (0,)), chain[0], last, (_copy_soon, (2, 3))) == [
        "_copy_soon reads before it waits what _copy_and_let_go_late writes"
    ]


def test_a_launch_that_is_not_early_waits_for_all():
    assert found((_copy_duly, (1, 0)), (_write, (3,)), (_copy_soon, (2, 1))) == []
    with noting() as noted:
        first, second, other = (torch.zeros(NUMBERS, dtype=torch.int32) for _ in range(3))
        _copy_duly[(1,)](second, first, launch_pdl=True)
        torch.add(first, 1, out=other)
        _copy_soon[(1,)](first, second, launch_pdl=True)
    assert noted.found == [] and noted.early_kernels == {"_copy_duly", "_copy_soon"}


def test_who_writes_before_waiting_spoils_what_others_read():
    assert found((_copy_duly, (1, 0)), (_write_soon, (0,))) == [
        "_write_soon writes before it waits what _copy_duly uses"
    ]
    assert found((_copy_duly, (1, 0)), (_write_soon, (1,))) == [
        "_write_soon writes before it waits what _copy_duly uses"
    ]
    assert found((_copy_duly, (1, 0)), (_write_soon, (2,))) == []


@triton.jit
def _program_by_program(out, stride, span):
    places = tl.program_id(0) * stride + tl.arange(0, 4)
    tl.store(out + places, 1, mask=tl.arange(0, 4) < span)


@triton.jit
def _next_to_mine(out):
    program = tl.program_id(0)
    tl.store(out + program, tl.load(out + (program + 1) % 2 + 4))


@triton.jit
def _read_of_others(out):
    program = tl.program_id(0)
    tl.store(out + program, 1)
    tl.load(out + 1 - program)


@triton.jit
def _read_of_others_in_the_end(out, count):
    program = tl.program_id(0)
    tl.store(out + program, 1)
    if tl.atomic_add(count, 1, sem="acq_rel") == 1:
        tl.store(out + 2, tl.load(out) + tl.load(out + 1))


def test_programs_of_a_launch_that_meet():
    def of_two_programs(kernel: Any, *numbers: int) -> list[str]:
        out = torch.zeros(NUMBERS, dtype=torch.int32)
        with noting() as noted:
            kernel[(2,)](out, *numbers)
        return noted.found

    assert of_two_programs(_program_by_program, 4, 4) == of_two_programs(_program_by_program, 3, 3) == []
    assert of_two_programs(_program_by_program, 3, 4) == ["programs of _program_by_program meet"]
    assert of_two_programs(_next_to_mine) == []
    assert of_two_programs(_read_of_others) == ["programs of _read_of_others meet"]
    with noting() as noted:
        out, count = torch.zeros(NUMBERS, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
        _read_of_others_in_the_end[(2,)](out, count)
    assert not noted.found, "they agree who reads"


@triton.jit
def _write_in_the_end(out, count):
    overlap.launch_dependents(True)
    overlap.wait_for_earlier(True)
    if tl.atomic_add(count, 1, sem="acq_rel") == 0:
        tl.store(out + tl.arange(0, 8), 1)


def test_what_a_program_writes_once_agreed_is_met_by_the_next_kernel():
    told = "_copy_soon reads before it waits what _write_in_the_end writes"
    assert found((_write_in_the_end, (0, 3)), (_copy_soon, (1, 0))) == [told]
    assert found((_write_in_the_end, (0, 3)), (_copy_duly, (1, 0))) == []


def test_who_never_waits_is_told_of():
    [told] = found((_never_waits, (0,)))
    assert told.startswith("_never_waits never waits")
