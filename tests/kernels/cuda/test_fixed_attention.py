from __future__ import annotations

import numpy as np
import pytest
import torch

from pagoda.kernels.cuda import fixed_attention as kernel
from pagoda.kernels.reference import ReferenceOperators
from tests.kernels.cuda.device import (
    DEVICE,
    DTYPES,
    TOLERANCES,
    assert_close,
    behind_a_poisoned_page,
    on_device,
    poisoned,
    rounded,
    rounded_pages,
    to_numpy,
)
from tests.kernels.reference.ragged import RaggedCase, Row, make_case

SCALE = 0.3
MIXED = [Row(0, 30), Row(21, 17), Row(0, 1), Row(70, 1)]
DECODING = [Row(3, 1), Row(280, 1), Row(0, 1), Row(150, 1)]
SPLIT_LEN = 128


@pytest.fixture(autouse=True)
def short_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "SPLIT_LEN", SPLIT_LEN)


def queries_of(case: RaggedCase, group: int) -> np.ndarray:
    _, _, num_kv_heads, head_dim = case.pages.keys.shape
    shape = (len(case.batch.token_ids), num_kv_heads * group, head_dim)
    return np.random.default_rng(8).standard_normal(shape, np.float32)


def workspace_for(case: RaggedCase, group: int) -> kernel.SplitWorkspace:
    _, _, num_kv_heads, head_dim = case.pages.keys.shape
    shape = (len(case.batch.context_lens), num_kv_heads * group, num_kv_heads, head_dim)
    return kernel.split_workspace(*shape, 300, DEVICE)


def run(
    case: RaggedCase,
    queries: np.ndarray,
    group: int,
    window: int,
    dtype: torch.dtype,
    num_programs: int = 0,
    page_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """`num_programs` of 0: one program takes all splits."""
    page_dtype = page_dtype or dtype
    padding = np.full((3, *queries.shape[1:]), np.nan, np.float32)
    out = poisoned((len(queries) + 3, *queries.shape[1:]), dtype)
    workspace = workspace_for(case, group) if num_programs else None
    kernel.fixed_attention(
        out,
        on_device(np.concatenate([queries, padding]), dtype),
        behind_a_poisoned_page(case.pages.keys, page_dtype),
        behind_a_poisoned_page(case.pages.values, page_dtype),
        on_device(case.batch.page_tables[1]),
        on_device(case.batch.row_starts),
        on_device(case.batch.context_lens),
        SCALE,
        window,
        workspace,
        max(1, num_programs),
    )
    assert workspace is None or not workspace.num_done.any()
    assert np.isnan(to_numpy(out[len(queries) :])).all()
    return out[: len(queries)]


def check(case: RaggedCase, group: int, window: int, kind: str = "f32", num_programs: int = 0) -> None:
    dtype = DTYPES[kind]
    queries = rounded(queries_of(case, group), dtype)
    out = run(case, queries, group, window, dtype, num_programs)
    expected = ReferenceOperators().attention(queries, rounded_pages(case.pages, dtype), case.batch, 1, SCALE, window)
    assert_close(out, expected, TOLERANCES[kind] * max(1, queries.shape[2] / 128))


@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_pages_in_float8(kind: str):
    case, dtype = make_case(MIXED, 16, 2, 16, 0, seed=1), torch.float8_e4m3fn
    queries = rounded(queries_of(case, 4), DTYPES[kind])
    out = run(case, queries, 4, 0, DTYPES[kind], page_dtype=dtype)
    expected = ReferenceOperators().attention(queries, rounded_pages(case.pages, dtype), case.batch, 1, SCALE, 0)
    assert_close(out, expected, TOLERANCES[kind])


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("group", [1, 3, 4])
def test_types_and_groups_of_heads(kind: str, group: int):
    check(make_case(MIXED, 16, 2, 16, 0, seed=1), group, 0, kind)


@pytest.mark.parametrize(("page_size", "window"), [(1, 0), (32, 1), (16, 7), (64, 16), (32, 50), (16, 0)])
def test_page_sizes_and_windows(page_size: int, window: int):
    check(make_case(MIXED, page_size, 1, 16, window, seed=2), 2, window)


@pytest.mark.parametrize("head_dim", [8, 80, 128, 256])
def test_widths_of_a_head(head_dim: int):
    check(make_case([Row(9, 30)], 16, 1, head_dim, 0, seed=3), 4, 0)


@pytest.mark.parametrize("window", [0, 70, 140])
@pytest.mark.parametrize("num_programs", [0, 1, 2, 5])
def test_contexts_of_several_splits(window: int, num_programs: int):
    check(make_case(DECODING, 16, 2, 16, window, seed=4), 2, window, num_programs=num_programs)


def test_a_chunk_that_crosses_a_split():
    check(make_case([Row(120, 40), Row(250, 30)], 16, 1, 16, 0, seed=5), 2, 0)


@pytest.mark.parametrize("num_programs", [0, 2])
def test_padding_gets_zeros(num_programs: int):
    case = make_case([Row(4, 1), Row(8, 1)], 16, 1, 16, 0, seed=6)
    case.batch.context_lens[1] = 0
    out = to_numpy(run(case, queries_of(case, 2), 2, 0, torch.float32, num_programs))
    assert out[0].all() and not out[1].any()


def part_of(case: RaggedCase, first: int, last: int) -> RaggedCase:
    """The only row of a case, of which the tokens [first, last) are new."""
    batch = case.batch
    lens, starts = np.array([last], np.int32), np.array([0, last - first], np.int32)
    part = type(batch)(batch.token_ids[first:last], batch.positions[first:last], starts, lens, batch.page_tables)
    return RaggedCase(part, case.pages, case.keys, case.values)


@pytest.mark.parametrize("kind", ["f32", "bf16"])
@pytest.mark.parametrize(("head_dim", "window"), [(16, 0), (16, 40), (128, 135)])
def test_a_token_has_the_same_bits_in_any_chunk_and_when_decoded(kind: str, head_dim: int, window: int):
    length, group, dtype = 150, 3, DTYPES[kind]
    case = make_case([Row(0, length)], 16, 2, head_dim, window, seed=7)
    queries = rounded(queries_of(case, group), dtype)
    whole = to_numpy(run(case, queries, group, window, dtype))
    for first, last in ((0, 7), (7, 130), (120, 135), (127, 150), (149, 150)):
        chunk = to_numpy(run(part_of(case, first, last), queries[first:last], group, window, dtype))
        np.testing.assert_array_equal(chunk, whole[first:last], err_msg=f"tokens {first} to {last}")
    for position in (0, 63, 127, 128, 149):
        one = part_of(case, position, position + 1)
        for num_programs in (0, 2):
            decoded = run(one, queries[position : position + 1], group, window, dtype, num_programs)
            np.testing.assert_array_equal(to_numpy(decoded)[0], whole[position], err_msg=f"token {position}")


def test_a_row_has_the_same_bits_in_any_batch():
    case = make_case(MIXED, 16, 2, 16, 0, seed=9)
    queries = queries_of(case, 2)
    together = to_numpy(run(case, queries, 2, 0, torch.float32))
    starts = case.batch.row_starts
    for row in range(len(MIXED)):
        first, last = starts[row], starts[row + 1]
        batch = type(case.batch)(
            case.batch.token_ids[first:last],
            case.batch.positions[first:last],
            np.array([0, last - first], np.int32),
            case.batch.context_lens[row : row + 1],
            tuple(table[row : row + 1] for table in case.batch.page_tables),
        )
        alone = run(RaggedCase(batch, case.pages, case.keys, case.values), queries[first:last], 2, 0, torch.float32)
        np.testing.assert_array_equal(to_numpy(alone), together[first:last])
