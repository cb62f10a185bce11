from __future__ import annotations

import numpy as np
import pytest
import torch

from pagoda.kernels.cuda import prefill_attention as kernel
from pagoda.kernels.cuda.tiles import PageTiles
from pagoda.kernels.reference import ReferenceOperators
from tests.kernels.cuda.device import (
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


def check(
    case: RaggedCase,
    group: int,
    window: int,
    kind: str = "f32",
    tile: int | None = 32,
    whole: bool = False,
    page_dtype: torch.dtype | None = None,
    block_tokens: int = 16,
) -> None:
    dtype = DTYPES[kind]
    page_dtype = page_dtype or dtype
    _, _, num_kv_heads, head_dim = case.pages.keys.shape
    num_tokens, padding = len(case.batch.token_ids), 3
    queries = np.random.default_rng(8).standard_normal((num_tokens, num_kv_heads * group, head_dim), np.float32)
    queries = rounded(queries, dtype)
    padded = np.concatenate([queries, np.full((padding, *queries.shape[1:]), np.nan, np.float32)])
    out = poisoned(padded.shape, dtype)
    keys, values = (behind_a_poisoned_page(pages, page_dtype) for pages in (case.pages.keys, case.pages.values))
    kernel.prefill_attention(
        out,
        on_device(padded, dtype),
        keys,
        values,
        on_device(case.batch.page_tables[1]),
        on_device(case.batch.row_starts),
        on_device(case.batch.context_lens),
        int(np.diff(case.batch.row_starts).max()),
        SCALE,
        window,
        tile=None if tile is None else kernel.PrefillTile(tile, block_tokens, 4, 2),
        page_tiles=PageTiles(keys, values) if whole else None,
    )
    pages = rounded_pages(case.pages, page_dtype)
    expected = ReferenceOperators().attention(queries, pages, case.batch, 1, SCALE, window)
    assert_close(out[:num_tokens], expected, TOLERANCES[kind])
    assert np.isnan(to_numpy(out[num_tokens:])).all()


MIXED = [Row(0, 30), Row(21, 17), Row(0, 1), Row(40, 1)]


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("group", [1, 3, 4])
def test_types_and_groups_of_heads(kind: str, group: int):
    check(make_case(MIXED, 16, 2, 16, 0, seed=1), group, 0, kind)


@pytest.mark.parametrize("kind", ["f32", "bf16"])
@pytest.mark.parametrize("whole", [False, True])
def test_pages_in_float8(kind: str, whole: bool):
    check(make_case(MIXED, 16, 2, 16, 0, seed=1), 4, 0, kind, whole=whole, page_dtype=torch.float8_e4m3fn)


@pytest.mark.parametrize(("page_size", "window"), [(1, 0), (32, 1), (16, 7), (64, 16), (32, 50), (16, 0)])
def test_page_sizes_and_windows(page_size: int, window: int):
    check(make_case(MIXED, page_size, 1, 16, window, seed=2), 2, window)


@pytest.mark.parametrize(("page_size", "block_tokens", "whole"), [(16, 64, False), (4, 16, False), (64, 16, True)])
@pytest.mark.parametrize("window", [1, 7, 20, 40, 70])
def test_pages_before_the_window_are_not_read(page_size: int, block_tokens: int, whole: bool, window: int):
    case = make_case([Row(200, 20), Row(61, 3), Row(0, 90)], page_size, 2, 16, window, seed=7)
    assert (case.batch.page_tables[1][0] == -1).any(), "there are such pages"
    check(case, 2, window, whole=whole, block_tokens=block_tokens)


@pytest.mark.parametrize("head_dim", [8, 80, 128])
def test_widths_of_a_head(head_dim: int):
    check(make_case([Row(9, 30)], 16, 1, head_dim, 0, seed=3), 4, 0)


@pytest.mark.parametrize("rows", [[Row(40, 1)] * 3, [Row(0, 5), Row(3, 2)], [Row(10, 200)]])
def test_the_tile_follows_from_the_longest_row(rows: list[Row]):
    check(make_case(rows, 16, 1, 16, 0, seed=4), 4, 0, tile=None)


def test_many_programs_take_more_lines_each(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kernel, "MANY_PROGRAMS", 2)
    tiles = []
    choose = kernel.prefill_tile
    monkeypatch.setattr(kernel, "prefill_tile", lambda *how: tiles.append(choose(*how)) or tiles[-1])
    check(make_case([Row(10, 90), Row(64, 3)], 64, 1, 16, 0, seed=4), 4, 0, "bf16", tile=None, whole=True)
    assert [tile.lines for tile in tiles] == [128]


def test_tiles_by_programs_and_lines():
    enough = 128 * kernel.MANY_PROGRAMS
    assert kernel.prefill_tile(128, enough, is_light=True).lines == 128
    for others in ((127, enough, True), (128, enough - 1, True), (128, enough, False)):
        assert kernel.prefill_tile(*others).lines == 64
    assert kernel.prefill_tile(3, enough, is_light=True).lines == 16


def test_more_rows_than_are_looked_through_together(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kernel, "ROWS_TOGETHER", 8)
    check(make_case([Row(2, 1)] * 9 + [Row(0, 9)] + [Row(5, 2)] * 10, 16, 1, 16, 0, seed=5), 2, 0)


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize(("page_size", "window"), [(16, 0), (16, 7), (48, 0), (64, 40)])
def test_whole_tiles_of_pages(kind: str, page_size: int, window: int):
    check(make_case([*MIXED, Row(100, 20)], page_size, 2, 16, window, seed=6), 4, window, kind, whole=True)


def test_a_tile_that_is_not_full_is_not_read_beyond_its_end():
    case = make_case([Row(0, 20), Row(30, 33)], 16, 2, 16, 0, seed=7)
    for row, context_len in enumerate(case.batch.context_lens):
        last = case.batch.page_tables[1][row, (context_len - 1) // 16]
        for pages in (case.pages.keys, case.pages.values):
            pages[last, (context_len - 1) % 16 + 1 :] = np.nan
    check(case, 2, 0, whole=True)
