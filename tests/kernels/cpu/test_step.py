"""The record of a step names the numbers that the step brought, whether the arrays are new ones or the last ones."""

from __future__ import annotations

import ctypes

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pagoda.kernels.base import RaggedBatch
from pagoda.kernels.cpu.library import Step
from pagoda.kernels.cpu.step import StepInputs


def read(address: int, count: int) -> list[int]:
    return list((ctypes.c_int32 * count).from_address(address))


def batch(num_rows: int, width: int, dtype: type = np.int32) -> RaggedBatch:
    counts = np.arange(num_rows).astype(dtype)
    tables = tuple((counts[:, None] * 10 + np.arange(width) + group).astype(dtype) for group in range(2))
    return RaggedBatch(counts + 1, counts + 2, np.arange(num_rows + 1).astype(dtype), counts + 3, tables)


def assert_names(record: Step, brought: RaggedBatch, logit_rows: np.ndarray) -> None:
    assert (record.num_tokens, record.num_rows) == (len(brought.token_ids), len(brought.context_lens))
    assert record.num_logit_rows == len(logit_rows)
    for name in ("token_ids", "positions", "row_starts", "context_lens"):
        values = getattr(brought, name)
        assert read(getattr(record, name), len(values)) == values.tolist()
    assert read(record.logit_rows, len(logit_rows)) == logit_rows.tolist()
    for group, table in enumerate(brought.page_tables):
        assert record.tables[group].stride == table.shape[1]
        assert read(record.tables[group].pages, table.size) == table.ravel().tolist()


@given(st.lists(st.tuples(st.integers(1, 90), st.integers(1, 40)), min_size=1, max_size=6))
def test_the_record_names_what_the_step_brought(steps):
    inputs = StepInputs(2)
    for num_rows, width in steps:
        brought, logit_rows = batch(num_rows, width), np.arange(num_rows)[::-1]
        assert_names(inputs.put(brought, logit_rows), brought, logit_rows)


def test_the_same_arrays_with_other_numbers_are_followed():
    for dtype in (np.int32, np.int64):  # the one is taken as it is, the other must be copied every time
        inputs, brought, logit_rows = StepInputs(2), batch(3, 4, dtype), np.arange(3).astype(dtype)
        assert_names(inputs.put(brought, logit_rows), brought, logit_rows)
        for array in (brought.token_ids, brought.positions, brought.context_lens, *brought.page_tables, logit_rows):
            array += 1
        assert_names(inputs.put(brought, logit_rows), brought, logit_rows)


def test_tables_of_any_order_are_read_row_after_row():
    inputs, given_batch = StepInputs(2), batch(3, 4)
    tables = tuple(np.asfortranarray(table) for table in given_batch.page_tables)
    strange = RaggedBatch(
        given_batch.token_ids, given_batch.positions, given_batch.row_starts, given_batch.context_lens, tables
    )
    assert_names(inputs.put(strange, np.arange(3)), strange, np.arange(3))
