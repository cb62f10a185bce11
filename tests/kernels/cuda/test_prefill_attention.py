from __future__ import annotations

import numpy as np
import pytest
import torch

from pagoda.kernels.cuda import prefill_attention as kernel
from pagoda.kernels.reference import ReferenceOperators
from tests.kernels.cuda.device import (
    DTYPES,
    TOLERANCES,
    assert_close,
    on_device,
    poisoned,
    rounded,
    rounded_pages,
    to_numpy,
)
from tests.kernels.reference.ragged import RaggedCase, Row, make_case

SCALE = 0.3


def check(
    case: RaggedCase, group: int, window: int, kind: str = "f32", tile: int | None = 32, apart: bool = False
) -> None:
    dtype = DTYPES[kind]
    _, _, num_kv_heads, head_dim = case.pages.keys.shape
    num_tokens, padding = len(case.batch.token_ids), 3
    queries = np.random.default_rng(8).standard_normal((num_tokens, num_kv_heads * group, head_dim), np.float32)
    queries = rounded(queries, dtype)
    padded = np.concatenate([queries, np.full((padding, *queries.shape[1:]), np.nan, np.float32)])
    out = poisoned(padded.shape, dtype)
    new = new_tokens(case, padding, dtype) if apart else {}
    kernel.prefill_attention(
        out,
        on_device(padded, dtype),
        on_device(case.pages.keys, dtype),
        on_device(case.pages.values, dtype),
        on_device(case.batch.page_tables[1]),
        on_device(case.batch.row_starts),
        on_device(case.batch.context_lens),
        int(np.diff(case.batch.row_starts).max()),
        SCALE,
        window,
        tile=None if tile is None else kernel.PrefillTile(tile, 16, 4, 2),
        **new,
    )
    pages = rounded_pages(case.pages, dtype)
    expected = ReferenceOperators().attention(queries, pages, case.batch, 1, SCALE, window)
    assert_close(out[:num_tokens], expected, TOLERANCES[kind])
    assert np.isnan(to_numpy(out[num_tokens:])).all()


def new_tokens(case: RaggedCase, padding: int, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """The keys and values of the step side by side, as a projection leaves them."""
    lengths = np.diff(case.batch.row_starts)
    found = {}
    for name, by_row in (("k_new", case.keys), ("v_new", case.values)):
        own = [numbers[len(numbers) - length :] for numbers, length in zip(by_row, lengths, strict=True)]
        found[name] = on_device(np.concatenate([*own, np.ones_like(own[0][:1]).repeat(padding, 0)]), dtype)
    return found


MIXED = [Row(0, 30), Row(21, 17), Row(0, 1), Row(40, 1)]


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("group", [1, 3, 4])
def test_types_and_groups_of_heads(kind: str, group: int):
    check(make_case(MIXED, 16, 2, 16, 0, seed=1), group, 0, kind)


@pytest.mark.parametrize(("page_size", "window"), [(1, 0), (32, 1), (16, 7), (64, 16), (32, 50), (16, 0)])
def test_page_sizes_and_windows(page_size: int, window: int):
    check(make_case(MIXED, page_size, 1, 16, window, seed=2), 2, window)


@pytest.mark.parametrize("head_dim", [8, 80, 128])
def test_widths_of_a_head(head_dim: int):
    check(make_case([Row(9, 30)], 16, 1, head_dim, 0, seed=3), 4, 0)


@pytest.mark.parametrize("rows", [[Row(40, 1)] * 3, [Row(0, 5), Row(3, 2)], [Row(10, 200)]])
def test_the_tile_follows_from_the_longest_row(rows: list[Row]):
    check(make_case(rows, 16, 1, 16, 0, seed=4), 4, 0, tile=None)


def test_more_rows_than_are_looked_through_together(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kernel, "ROWS_TOGETHER", 8)
    check(make_case([Row(2, 1)] * 9 + [Row(0, 9)] + [Row(5, 2)] * 10, 16, 1, 16, 0, seed=5), 2, 0)


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("window", [0, 7])
def test_new_tokens_that_lie_apart_from_the_pages(kind: str, window: int):
    check(make_case(MIXED, 16, 2, 16, window, seed=6), 4, window, kind, apart=True)


def test_rows_without_a_cache_do_not_read_the_pages():
    case = make_case([Row(0, 20), Row(0, 33)], 16, 2, 16, 0, seed=7)
    queries = on_device(np.random.default_rng(8).standard_normal((53, 4, 16), np.float32))
    nothing = poisoned(case.pages.keys.shape, torch.float32)
    out, new = poisoned((53, 4, 16), torch.float32), new_tokens(case, 0, torch.float32)
    table, starts, lens = map(on_device, (case.batch.page_tables[1], case.batch.row_starts, case.batch.context_lens))
    tile = kernel.PrefillTile(32, 16, 4, 2)
    kernel.prefill_attention(out, queries, nothing, nothing, table, starts, lens, 33, SCALE, 0, **new, tile=tile)
    expected = ReferenceOperators().attention(to_numpy(queries), case.pages, case.batch, 1, SCALE, 0)
    assert_close(out, expected, TOLERANCES["f32"])
