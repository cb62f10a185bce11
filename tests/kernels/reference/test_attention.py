from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pagoda.kernels.reference import ReferenceOperators, attention
from tests.kernels.reference.ragged import RaggedCase, Row, make_case

ROWS = st.lists(st.builds(Row, st.integers(0, 40), st.integers(1, 20)), min_size=1, max_size=4)


def torch_attention(queries: np.ndarray, case: RaggedCase, scale: float, window: int) -> np.ndarray:
    outputs = []
    starts = case.batch.row_starts
    for row, (keys, values) in enumerate(zip(case.keys, case.values, strict=True)):
        own = torch.tensor(queries[starts[row] : starts[row + 1]]).double().transpose(0, 1)
        num_new, context_len = own.shape[1], len(keys)
        distance = torch.arange(context_len - num_new, context_len)[:, None] - torch.arange(context_len)
        seen = (distance >= 0) & ((distance < window) if window else True)
        mixed = torch.nn.functional.scaled_dot_product_attention(
            own,
            torch.tensor(keys).double().transpose(0, 1),
            torch.tensor(values).double().transpose(0, 1),
            attn_mask=seen,
            scale=scale,
            enable_gqa=True,
        )
        outputs.append(mixed.transpose(0, 1).numpy())
    return np.concatenate(outputs)


def check(rows: list[Row], page_size: int, num_kv_heads: int, heads_per_group: int, head_dim: int, window: int) -> None:
    case = make_case(rows, page_size, num_kv_heads, head_dim, window, seed=7)
    num_tokens = len(case.batch.token_ids)
    shape = (num_tokens, num_kv_heads * heads_per_group, head_dim)
    queries = np.random.default_rng(8).standard_normal(shape, np.float32)
    expected = torch_attention(queries, case, 0.3, window)
    for accumulate, tolerance in ((np.float64, 3e-7), (np.float32, 5e-6)):
        operators = ReferenceOperators(accumulate)
        actual = operators.attention(queries, case.pages, case.batch, 1, 0.3, window)
        assert actual.dtype == np.float32
        np.testing.assert_allclose(actual, expected, atol=tolerance, rtol=tolerance)


@given(
    rows=ROWS,
    page_size=st.sampled_from([1, 3, 4, 16]),
    num_kv_heads=st.integers(1, 3),
    heads_per_group=st.integers(1, 4),
    head_dim=st.sampled_from([1, 8, 32]),
    window=st.sampled_from([0, 1, 5, 16, 1000]),
)
def test_ragged_rows_agree_with_torch(rows, page_size, num_kv_heads, heads_per_group, head_dim, window):
    check(rows, page_size, num_kv_heads, heads_per_group, head_dim, window)


@pytest.mark.parametrize("window", [0, 50, 128, 200])
def test_a_long_chunk_spans_several_query_tiles(window):
    rows = [Row(30, 2 * attention.QUERY_TILE + 5), Row(400, 1), Row(0, attention.QUERY_TILE)]
    check(rows, 16, 2, 3, 16, window)


def test_a_row_of_no_tokens_costs_nothing():
    case = make_case([Row(4, 2), Row(9, 1)], 4, 1, 8, 0, seed=1)
    batch = case.batch
    with_empty = type(batch)(
        batch.token_ids,
        batch.positions,
        np.array([0, 2, 2, 3], np.int32),
        batch.context_lens[[0, 0, 1]],
        tuple(table[[0, 0, 1]] for table in batch.page_tables),
    )
    queries = np.random.default_rng(2).standard_normal((3, 2, 8), np.float32)
    operators = ReferenceOperators()
    np.testing.assert_array_equal(
        operators.attention(queries, case.pages, with_empty, 1, 1.0),
        operators.attention(queries, case.pages, batch, 1, 1.0),
    )


def test_a_page_that_was_given_back_too_early_is_noticed():
    case = make_case([Row(20, 1)], 4, 1, 8, 0, seed=1)
    case.batch.page_tables[1][0, 2] = -1
    queries = np.zeros((1, 1, 8), np.float32)
    with pytest.raises(IndexError, match="not held"):
        ReferenceOperators().attention(queries, case.pages, case.batch, 1, 1.0)
    ReferenceOperators().attention(queries, case.pages, case.batch, 1, 1.0, window=8)
