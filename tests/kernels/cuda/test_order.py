"""That programs do run in another order, each once, and other ones at the next launch."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from tests.kernels.cuda.device import DEVICE

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU has an order of its own")


@triton.jit
def _line_up(places, count):
    program = (tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)) * tl.num_programs(2) + tl.program_id(2)
    tl.store(places + program, tl.atomic_add(count, 1))


def lined_up(*grid: int) -> list[int]:
    places = torch.full(grid, -1, dtype=torch.int32, device=DEVICE)
    _line_up[grid](places, torch.zeros(1, dtype=torch.int32, device=DEVICE))
    return places.flatten().tolist()


@pytest.mark.parametrize("grid", [(60,), (4, 15), (3, 4, 5)])
def test_programs_come_in_any_order(grid: tuple[int, ...]):
    first, second = lined_up(*(*grid, 1, 1)[:3]), lined_up(*(*grid, 1, 1)[:3])
    assert sorted(first) == sorted(second) == list(range(60))
    assert first != second and list(range(60)) not in (first, second)
