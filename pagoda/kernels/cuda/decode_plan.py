"""Who reads what in decode attention: the contexts of a step, cut into splits that fill the device.

A program of decode_attention.py takes one split of one row. All splits of a step are about as long, whatever the rows
are: a long context among short ones is cut into many, a few contexts are cut finely, and many are cut as little as
fills the device. So how a row is cut depends on the rows beside it. The plan is made on the device, once a step for all
layers that are alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from pagoda.kernels.cuda.counting import bytes_of
from pagoda.kernels.cuda.launch import block_of
from pagoda.kernels.cuda.quick_launch import quick

# Splits that fill the device, by all key/value heads: eight programs a multiprocessor.
PROGRAMS_IN_ALL = 1056
# Where there is more to read than that, a split has so many tokens: with shorter ones more is put together again, with
# longer ones the last are at work when all others are done.
SPLIT_LEN = tl.constexpr(512)
# No shorter, and a multiple of it: whole tiles in whole pages.
UNIT = tl.constexpr(64)
# Longer ones than SPLIT_LEN keep the splits of a row to so many, and those of all rows to the grid.
MOST_SPLITS = tl.constexpr(128)
SLOTS_A_ROW = 4

# A record of a slot: numbers of int32. A row of -1: the slot has nothing to do.
ROW = tl.constexpr(0)
BEGIN = tl.constexpr(1)
END = tl.constexpr(2)
LENGTH = tl.constexpr(3)  # of the row's context
SPLIT = tl.constexpr(4)  # of the row's splits, this one
NUM_SPLITS = tl.constexpr(5)
RECORD_WIDTH = tl.constexpr(8)

SLOTS_TOGETHER = tl.constexpr(128)
# Few rows are summed up by a single warp.
FEW_ROWS = 32


class PlanKind(NamedTuple):
    """Layers that are alike: they read the same of every row, by as many key/value heads."""

    num_kv_heads: int
    window: int = 0

    @property
    def num_wanted(self) -> int:
        """Splits that fill the device."""
        return max(1, PROGRAMS_IN_ALL // self.num_kv_heads)

    def num_slots(self, num_rows: int) -> int:
        """A step of so many rows has no more splits."""
        return max(SLOTS_A_ROW * num_rows, num_rows + self.num_wanted)


@dataclass(frozen=True, eq=False)
class DecodePlan:
    """Serves one step at a time."""

    kind: PlanKind
    records: torch.Tensor  # [slots, RECORD_WIDTH] int32
    rows: torch.Tensor  # [rows, 2] int32: the first slot of each, and how many it has

    @classmethod
    def of(cls, kind: PlanKind, max_rows: int, device: torch.device | str) -> DecodePlan:
        def empty(*shape: int) -> torch.Tensor:
            return torch.empty(shape, dtype=torch.int32, device=device)

        return cls(kind, empty(kind.num_slots(max_rows), RECORD_WIDTH.value), empty(max_rows, 2))

    @property
    def num_bytes(self) -> int:
        return bytes_of(self.records, self.rows)

    def make(self, context_lens: torch.Tensor, shared_lens: torch.Tensor | None = None) -> None:
        """For a step of these rows; the first shared_lens[r] tokens of a row are left to another kernel.

        Only launches, so that it may be captured. A row without tokens has one slot all the same.
        """
        assert shared_lens is None or not self.kind.window
        num_rows = len(context_lens)
        assert num_rows <= len(self.rows), f"a plan of {len(self.rows)} rows for {num_rows}"
        _plan[(num_rows,)](
            self.records,
            self.rows,
            context_lens,
            shared_lens,
            num_rows,
            self.kind.window,
            self.kind.num_slots(num_rows),
            self.kind.num_wanted,
            ROWS=FEW_ROWS if num_rows <= FEW_ROWS else max(FEW_ROWS, block_of(len(self.rows))),
            num_warps=1 if num_rows <= FEW_ROWS else 4,
        )


@triton.jit
def _whole_units(tokens):
    return tl.cdiv(tokens, UNIT) * UNIT


@quick
@triton.jit(do_not_specialize=["num_rows", "window", "num_slots", "num_wanted"])
def _plan(
    records, plan_rows, context_lens, shared_lens, num_rows, window, num_slots, num_wanted, ROWS: tl.constexpr
):  # fmt: skip
    own = tl.program_id(0)
    rows = tl.arange(0, ROWS)
    lens = tl.load(context_lens + rows, mask=rows < num_rows, other=0)
    firsts = tl.where(window > 0, tl.maximum(lens - window, 0), 0)
    if shared_lens is not None:
        firsts = tl.load(shared_lens + rows, mask=rows < num_rows, other=0)
    left = lens - firsts
    total = tl.sum(left.to(tl.int64), 0)
    split_len = tl.minimum(_whole_units(tl.cdiv(total, num_wanted)), SPLIT_LEN)
    # A row has a split more than its length has whole ones, at most: so they all fit.
    split_len = tl.maximum(split_len, _whole_units(tl.cdiv(total, num_slots - num_rows)))
    split_len = tl.maximum(split_len, _whole_units(tl.cdiv(tl.max(left, 0), MOST_SPLITS).to(tl.int64)))
    split_len = tl.maximum(split_len, UNIT).to(tl.int32)
    # The splits of a row are about as long as each other.
    row_lens = tl.maximum(_whole_units(tl.cdiv(left, tl.maximum(tl.cdiv(left, split_len), 1))), UNIT)
    counts = tl.where(rows < num_rows, tl.maximum(tl.cdiv(left, row_lens), 1), 0)

    is_own = rows == own
    start = tl.sum(tl.where(rows < own, counts, 0), 0)
    count, row_len = tl.sum(tl.where(is_own, counts, 0), 0), tl.sum(tl.where(is_own, row_lens, 0), 0)
    first, length = tl.sum(tl.where(is_own, firsts, 0), 0), tl.sum(tl.where(is_own, lens, 0), 0)
    tl.store(plan_rows + own * 2, start)
    tl.store(plan_rows + own * 2 + 1, count)
    splits = tl.arange(0, MOST_SPLITS)
    is_split = splits < count
    slots = records + (start + splits) * RECORD_WIDTH
    begins = first + splits * row_len
    tl.store(slots + ROW, tl.where(is_split, own, 0), mask=is_split)
    tl.store(slots + BEGIN, begins, mask=is_split)
    tl.store(slots + END, tl.minimum(begins + row_len, length), mask=is_split)
    tl.store(slots + LENGTH, tl.where(is_split, length, 0), mask=is_split)
    tl.store(slots + SPLIT, splits, mask=is_split)
    tl.store(slots + NUM_SPLITS, tl.where(is_split, count, 0), mask=is_split)
    # What is left over has nothing to do; each row sees to a part of it.
    for start in range(tl.sum(counts, 0) + own * SLOTS_TOGETHER, num_slots, num_rows * SLOTS_TOGETHER):
        idle = start + tl.arange(0, SLOTS_TOGETHER)
        tl.store(records + idle * RECORD_WIDTH + ROW, -1, mask=idle < num_slots)
