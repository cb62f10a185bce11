"""The inputs of a step lie where they lay before, and hold what the step brought."""

from __future__ import annotations

import ctypes

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pagoda.kernels.base import RaggedBatch
from pagoda.kernels.cpu.step import IntSlot, StepInputs


def read(address: int, count: int) -> list[int]:
    return list((ctypes.c_int32 * count).from_address(address))


@given(st.lists(st.lists(st.integers(-5, 10_000), max_size=200), min_size=1, max_size=8))
def test_a_slot_holds_the_last_array_and_says_when_it_moved(arrays):
    slot, before = IntSlot(), 0
    for values in arrays:
        moved = slot.put(np.array(values, np.int64))
        assert moved == (slot.address != before)
        before = slot.address
        if values:
            assert read(slot.address, len(values)) == values


def test_a_table_of_any_order_is_laid_out_row_after_row():
    slot = IntSlot()
    table = np.arange(12, dtype=np.int64).reshape(3, 4)
    slot.put(np.asfortranarray(table))
    assert read(slot.address, 12) == list(range(12))
    slot.put(table[::2, 1:3])
    assert read(slot.address, 4) == [1, 2, 9, 10]


def batch(num_rows: int, width: int) -> RaggedBatch:
    counts = np.arange(num_rows, dtype=np.int32)
    tables = tuple(counts[:, None] * 10 + np.arange(width) + group for group in range(2))
    return RaggedBatch(counts + 1, counts + 2, np.arange(num_rows + 1), counts + 3, tables)


@given(st.lists(st.tuples(st.integers(1, 90), st.integers(1, 40)), min_size=1, max_size=6))
def test_the_record_names_what_the_step_brought(steps):
    inputs = StepInputs(2)
    for num_rows, width in steps:
        brought = batch(num_rows, width)
        logit_rows = np.arange(num_rows)[::-1]
        record = inputs.put(brought, logit_rows)
        assert (record.num_tokens, record.num_rows, record.num_logit_rows) == (num_rows,) * 3
        for name in ("token_ids", "positions", "row_starts", "context_lens"):
            values = getattr(brought, name)
            assert read(getattr(record, name), len(values)) == values.tolist()
        assert read(record.logit_rows, num_rows) == logit_rows.tolist()
        for group, table in enumerate(brought.page_tables):
            found = record.tables[group]
            assert found.stride == width
            assert read(found.pages, table.size) == table.ravel().tolist()
