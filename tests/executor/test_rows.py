"""What the worker keeps of a row, and how a step's inputs are gathered from it."""

from __future__ import annotations

import numpy as np
import pytest

from pagoda.core.plan import RowPayload, RowStart, TableUpdate
from pagoda.core.sampling_params import SamplingParams
from pagoda.executor.rows import NO_PAGE, WorkerRows, in_order


def start(
    rows: WorkerRows, row: int, token_ids: list[int], computed: int, *tables: tuple[int, ...], **sampling
) -> None:
    order = RowStart(row, 100 + row, "r", 0, computed, tables)
    payload = RowPayload(100 + row, np.array(token_ids, np.int32), len(token_ids), SamplingParams(**sampling), 1)
    rows.start(order, payload)


@pytest.fixture
def rows() -> WorkerRows:
    return WorkerRows(num_rows=4, max_tokens=22, page_size=4, num_groups=2)


def test_a_batch_holds_the_next_tokens_of_each_row(rows):
    start(rows, 2, [10, 11, 12, 13, 14], 0, (7, 8), (1, 2))
    start(rows, 0, [20, 21, 22, 23, 24, 25], 4, (5, 6), (NO_PAGE, 3))
    batch = rows.batch(np.array([2, 0], np.int32), np.array([3, 2], np.int32))
    assert batch.token_ids.tolist() == [10, 11, 12, 24, 25]
    assert batch.positions.tolist() == [0, 1, 2, 4, 5]
    assert batch.row_starts.tolist() == [0, 3, 5]
    assert batch.context_lens.tolist() == [3, 6]
    assert [table.tolist() for table in batch.page_tables] == [[[7, 8], [5, 6]], [[1, 2], [NO_PAGE, 3]]]
    assert batch.token_ids.dtype == batch.positions.dtype == batch.row_starts.dtype == np.int32
    assert batch.context_lens.dtype == batch.page_tables[0].dtype == np.int32


def test_tables_are_as_wide_as_the_longest_context(rows):
    start(rows, 0, list(range(20)), 16, (0, 1, 2, 3, 4), (0, 1, 2, 3, 4))
    start(rows, 1, [1, 2], 0, (9,), (9,))
    batch = rows.batch(np.array([0, 1], np.int32), np.array([4, 2], np.int32))
    assert batch.page_tables[0].shape == (2, 5)
    assert rows.page_tables[0].shape == (4, 6), "the last page may be partly used"


def test_appended_tokens_are_the_next_to_be_computed(rows):
    start(rows, 1, [1, 2], 0, (0,), (0,))
    start(rows, 3, [3], 0, (1,), (1,))
    rows.num_computed[[1, 3]] += np.array([2, 1])
    rows.append(np.array([3, 1], np.int32), np.array([30, 10], np.int32))
    batch = rows.batch(np.array([1, 3], np.int32), np.array([1, 1], np.int32))
    assert batch.token_ids.tolist() == [10, 30]
    assert batch.positions.tolist() == [2, 1]


def test_an_update_changes_only_its_entries(rows):
    start(rows, 1, [1] * 10, 0, (5, 6), (7, 8))
    rows.update_table(TableUpdate(1, 1, 1, (9, 4)))
    assert rows.page_tables[1][1, :3].tolist() == [7, 9, 4]
    assert rows.page_tables[0][1, :3].tolist() == [5, 6, NO_PAGE]


def test_a_new_tenant_finds_its_own_numbers(rows):
    start(rows, 0, [1, 2, 3], 2, (5,), (5,), prompt_logprobs=3)
    assert rows.num_prompt_logprobs[0] == 3
    start(rows, 0, [9], 0, (6,), (6,))
    assert (rows.num_tokens[0], rows.num_computed[0], rows.num_prompt_tokens[0]) == (1, 0, 1)
    assert rows.num_prompt_logprobs[0] == -1
    assert rows.token_ids[0, 0] == 9


def test_an_empty_batch(rows):
    nobody = np.zeros(0, np.int32)
    batch = rows.batch(nobody, nobody)
    assert batch.token_ids.shape == (0,) and batch.row_starts.tolist() == [0]


def test_payloads_must_be_about_the_rows_that_start():
    order = RowStart(0, 5, "r", 0, 0, ())
    payload = RowPayload(6, np.zeros(1, np.int32), 1, SamplingParams(), 0)
    with pytest.raises(AssertionError, match="another sequence"):
        in_order([order], [payload])
    with pytest.raises(ValueError):
        in_order([order], [])
