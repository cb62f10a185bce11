from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.kernels.base import KVPages
from pagoda.kernels.reference import ReferenceOperators
from tests.kernels.reference.ragged import Row, empty_pages, make_batch

ROWS = st.lists(st.builds(Row, st.integers(0, 30), st.integers(1, 12)), min_size=1, max_size=5)


@given(rows=ROWS, page_size=st.sampled_from([1, 4, 16]), seed=st.integers(0, 2**32 - 1))
def test_each_token_is_written_where_its_table_says_and_nowhere_else(rows, page_size, seed):
    generator = np.random.default_rng(seed)
    batch, num_pages = make_batch(rows, page_size, generator)
    pages = empty_pages(num_pages, page_size, 2, 3)
    keys, values = generator.standard_normal((2, len(batch.token_ids), 2, 3), np.float32)
    ReferenceOperators().write_pages(keys, values, pages, batch, 1)

    token = 0
    for index, row in enumerate(rows):
        for number in range(row.num_cached, row.context_len):
            page = batch.page_tables[1][index, number // page_size]
            np.testing.assert_array_equal(pages.keys[page, number % page_size], keys[token])
            np.testing.assert_array_equal(pages.values[page, number % page_size], values[token])
            token += 1
    for written in (pages.keys, pages.values):
        assert np.isfinite(written[..., 0, 0]).sum() == token


def test_a_token_without_a_page_is_refused():
    batch, num_pages = make_batch([Row(3, 4)], 4, np.random.default_rng(0))
    batch.page_tables[1][0, 1] = -1
    pages = empty_pages(num_pages, 4, 1, 2)
    zeros = np.zeros((4, 1, 2), np.float32)
    with pytest.raises(IndexError, match="group 1"):
        ReferenceOperators().write_pages(zeros, zeros, pages, batch, 1)
    assert np.isnan(pages.keys).all()


def test_copy_pages_leaves_the_rest_alone():
    generator = np.random.default_rng(5)
    keys, values = generator.standard_normal((2, 6, 4, 1, 2), np.float32)
    pages = KVPages(keys.copy(), values.copy())
    ReferenceOperators().copy_pages(pages, np.array([0, 5], np.int32), np.array([3, 1], np.int32))
    order = [0, 5, 2, 0, 4, 5]
    np.testing.assert_array_equal(pages.keys, keys[order])
    np.testing.assert_array_equal(pages.values, values[order])
