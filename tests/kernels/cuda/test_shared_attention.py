from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch

from pagoda.kernels.cuda import decode_attention as decode
from pagoda.kernels.cuda import shared_attention as shared
from pagoda.kernels.cuda.decode_attention import (
    BYTE_TILE,
    FEW_TILE,
    MANY_TILE,
    DecodeTile,
    decode_attention,
    decode_workspace,
)
from pagoda.kernels.cuda.decode_plan import DecodePlan, PlanKind
from pagoda.kernels.cuda.shared_attention import SharedRows, SharedTile, shared_attention
from pagoda.kernels.cuda.tiles import PageTiles
from pagoda.kernels.reference import ReferenceOperators
from tests.kernels.cuda.device import (
    DEVICE,
    DTYPES,
    TOLERANCES,
    assert_close,
    on_device,
    poisoned,
    rounded,
    rounded_pages,
)
from tests.kernels.reference.ragged import RaggedCase, Row, make_case

SCALE = 0.3
PAGE_SIZE = 16


@pytest.fixture(autouse=True)
def short_shared_units(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (decode, shared):
        monkeypatch.setattr(module, "SHARED_UNIT", 48)


def share(case: RaggedCase, groups: list[list[int]], shared_pages: list[int]) -> SharedRows:
    """Let the rows of a group begin with the pages of its first row."""
    table = case.batch.page_tables[1]
    lens = np.zeros(len(table), np.int32)
    for group, num_pages in zip(groups, shared_pages, strict=True):
        table[group, :num_pages] = table[group[0], :num_pages] if group else 0
        lens[group] = num_pages * PAGE_SIZE
    members = np.array([row for group in groups for row in group], np.int32)
    starts = np.cumsum([0, *map(len, groups)], dtype=np.int32)
    return SharedRows(*map(on_device, (lens, members, starts)))


def queries_of(case: RaggedCase, heads: int, dtype: torch.dtype) -> np.ndarray:
    num_rows, (_, _, num_kv_heads, head_dim) = len(case.batch.context_lens), case.pages.keys.shape
    queries = np.random.default_rng(8).standard_normal((num_rows, num_kv_heads * heads, head_dim), np.float32)
    return rounded(queries, dtype)


def attend(
    case: RaggedCase,
    rows: SharedRows,
    heads: int,
    dtype: torch.dtype = torch.float32,
    pieces: int | None = 4,
    whole: bool = False,
    page_dtype: torch.dtype | None = None,
    beside: DecodeTile | None = None,
) -> torch.Tensor:
    queries = queries_of(case, heads, dtype)
    num_rows, num_heads, head_dim = queries.shape
    workspace = decode_workspace(num_rows, num_heads, num_heads // heads, head_dim, DEVICE, 132 * num_rows)
    plan = DecodePlan.of(PlanKind(num_heads // heads), num_rows, DEVICE)
    plan.make(on_device(case.batch.context_lens), rows.shared_lens)
    out = poisoned(queries.shape, dtype)
    keys, values = (on_device(x, page_dtype or dtype) for x in (case.pages.keys, case.pages.values))
    shared_attention(
        out,
        on_device(queries, dtype),
        keys,
        values,
        on_device(case.batch.page_tables[1]),
        plan,
        rows,
        SCALE,
        workspace,
        pieces=pieces,
        tile=SharedTile(16, 16, 4, 4),
        tile_beside=beside,
        page_tiles=PageTiles(keys, values) if whole else None,
    )
    assert not workspace.parts_done.any() and not workspace.rows_done.any()
    return out


def check(
    case: RaggedCase,
    rows: SharedRows,
    heads: int,
    kind: str = "f32",
    page_dtype: torch.dtype | None = None,
    **others: Any,
) -> None:
    dtype = DTYPES[kind]
    pages = rounded_pages(case.pages, page_dtype or dtype)
    expected = ReferenceOperators().attention(queries_of(case, heads, dtype), pages, case.batch, 1, SCALE, 0)
    assert_close(attend(case, rows, heads, dtype, page_dtype=page_dtype, **others), expected, TOLERANCES[kind])


def new_case(*context_lens: int) -> RaggedCase:
    return make_case([Row(context_len - 1, 1) for context_len in context_lens], PAGE_SIZE, 2, 16, 0, seed=1)


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("heads", [1, 3, 4])
def test_two_groups_and_rows_of_none(kind: str, heads: int):
    case = new_case(120, 130, 17, 90, 101, 40)
    check(case, share(case, [[0, 1], [4, 3]], [7, 5]), heads, kind)


@pytest.mark.parametrize("kind", DTYPES)
def test_whole_tiles_of_pages(kind: str):
    case = new_case(120, 130, 17, 90, 101, 40)
    check(case, share(case, [[0, 1], [4, 3]], [7, 5]), 4, kind, whole=True)


@pytest.mark.parametrize("in_pages", [False, True])
def test_tiles_of_the_kernel_beside(in_pages: bool):
    case = new_case(120, 130, 17, 90, 101, 40)
    groups = share(case, [[0, 1], [4, 3]], [7, 5])
    check(case, groups, 4, "bf16", beside=DecodeTile(16, 1, 2, in_pages=in_pages, takes_whole=in_pages))


def test_many_rows_share_a_multiprocessor_with_more_readers():
    many, beside = shared.tiles_beside(256, is_light=True)
    assert many.most_registers is not None and beside == MANY_TILE
    for others in ((128, True), (256, False), (32, True)):
        assert shared.tiles_beside(*others)[0].most_registers is None
    assert shared.tiles_beside(8, is_light=True)[1] == FEW_TILE, "a split is a single tile"


@pytest.mark.parametrize("num_rows", [16, 64, 256])
def test_beside_pages_of_bytes_whole_tiles_are_read(num_rows: int):
    together, beside = shared.tiles_beside(num_rows, is_light=False, of_bytes=True)
    assert beside == BYTE_TILE and together.num_warps == (8 if num_rows <= 64 else 4)


@pytest.mark.parametrize("whole", [False, True])
def test_pages_in_float8(whole: bool):
    case = new_case(120, 130, 17, 90, 101, 40)
    groups = share(case, [[0, 1], [4, 3]], [7, 5])
    check(case, groups, 4, "bf16", whole=whole, page_dtype=torch.float8_e4m3fn)


@pytest.mark.parametrize("pieces", [1, 2, 8, None])
def test_a_group_larger_than_a_tile(pieces: int | None):
    case = new_case(*range(113, 123))
    check(case, share(case, [list(range(9, -1, -1))], [7]), 4, pieces=pieces)


def test_empty_groups_and_one_token_of_its_own():
    case = new_case(49, 49, 30)
    check(case, share(case, [[], [1, 0], []], [0, 3, 0]), 2)


def test_nothing_is_shared():
    case = new_case(49, 80)
    zeros = torch.zeros(2, dtype=torch.int32, device=DEVICE)
    nobody = SharedRows(zeros, zeros, torch.zeros(3, dtype=torch.int32, device=DEVICE))
    check(case, nobody, 2)


class OtherOrder:
    """Lets the kernel of the shared pages be launched after the one that it usually goes before."""

    def __init__(self) -> None:
        self._first: Any = shared._shared

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return functools.partial(self._keep, grid)

    def _keep(self, grid: tuple[int, ...], *args: Any, **settings: Any) -> None:
        self._kept = functools.partial(self._first[grid], *args, **settings)

    def decode(self, *args: Any, **settings: Any) -> None:
        decode_attention(*args, **settings)
        self._kept()


@pytest.mark.parametrize("kind", DTYPES)
def test_whoever_comes_last_puts_the_same_together(kind: str, monkeypatch: pytest.MonkeyPatch):
    case = new_case(*range(113, 123), 17, 190)
    rows = share(case, [list(range(9, -1, -1)), [11]], [7, 2])
    expected = attend(case, rows, 4, DTYPES[kind])
    order = OtherOrder()
    monkeypatch.setattr(shared, "_shared", order)
    monkeypatch.setattr(shared, "decode_attention", order.decode)
    assert torch.equal(attend(case, rows, 4, DTYPES[kind]), expected)
