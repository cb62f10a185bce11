from __future__ import annotations

import numpy as np
import pytest
import torch

from pagoda.kernels.base import RopeFrequencies
from pagoda.kernels.cuda import decode_plan
from pagoda.kernels.cuda.decode_attention import (
    BYTE_TILE,
    FEW_ROWS,
    FEW_TILE,
    MANY_TILE,
    DecodeTile,
    decode_attention,
    decode_tile,
    decode_workspace,
)
from pagoda.kernels.cuda.decode_plan import DecodePlan, PlanKind
from pagoda.kernels.cuda.rope_write import FreshHeads, HeadNorms, rope_write
from pagoda.kernels.cuda.tiles import PageTiles
from pagoda.kernels.reference import ReferenceOperators
from pagoda.kernels.reference.rope import rope_table
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


class Decode:
    """One case on the device and in the twin."""

    def __init__(
        self,
        case: RaggedCase,
        num_heads: int,
        window: int,
        kind: str = "f32",
        seed: int = 8,
        page_dtype: torch.dtype | None = None,
    ) -> None:
        self.case, self.window, self.kind = case, window, kind
        self.page_dtype = page_dtype or DTYPES[kind]
        num_rows, (_, _, num_kv_heads, head_dim) = len(case.batch.context_lens), case.pages.keys.shape
        queries = np.random.default_rng(seed).standard_normal((num_rows, num_heads, head_dim), np.float32)
        self.queries = rounded(queries, DTYPES[kind])
        self.workspace = decode_workspace(num_rows, num_heads, num_kv_heads, head_dim, DEVICE)
        self.plan = DecodePlan.of(PlanKind(num_kv_heads, window), num_rows, DEVICE)

    def run(self, rows: list[int] | None = None, tile: DecodeTile = MANY_TILE) -> torch.Tensor:
        picked = np.arange(len(self.queries)) if rows is None else np.array(rows)
        dtype = DTYPES[self.kind]
        out = poisoned(self.queries[picked].shape, dtype)
        both = self.case.pages.keys, self.case.pages.values
        keys, values = (behind_a_poisoned_page(pages, self.page_dtype) for pages in both)
        self.plan.make(on_device(self.case.batch.context_lens[picked]))
        decode_attention(
            out,
            on_device(self.queries[picked], dtype),
            keys,
            values,
            on_device(self.case.batch.page_tables[1][picked]),
            self.plan,
            SCALE,
            self.workspace,
            tile=tile,
            page_tiles=PageTiles(keys, values),
        )
        assert not self.workspace.parts_done.any() and not self.workspace.rows_done.any()
        return out

    def expected(self) -> np.ndarray:
        pages = rounded_pages(self.case.pages, self.page_dtype)
        return ReferenceOperators().attention(self.queries, pages, self.case.batch, 1, SCALE, self.window)


def rows(*context_lens: int) -> list[Row]:
    return [Row(context_len - 1, 1) for context_len in context_lens]


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("group", [1, 3, 4, 8, 20])
@pytest.mark.parametrize("tile", [MANY_TILE, FEW_TILE])
def test_types_and_groups_of_heads(kind: str, group: int, tile: DecodeTile):
    case = make_case(rows(1, 31, 33, 70), 16, 2, 32, 0, seed=1)
    decode = Decode(case, 2 * group, 0, kind)
    assert_close(decode.run(tile=tile), decode.expected(), TOLERANCES[kind])


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("page_size", [16, 32, 64])
@pytest.mark.parametrize("tile", [MANY_TILE, FEW_TILE, DecodeTile(32, 1, 2, tail_tokens=32)])
def test_whole_tiles_of_pages(kind: str, page_size: int, tile: DecodeTile):
    """In splits of 64 tokens and more: so many of two heads fill the device."""
    case = make_case(rows(1, 16, 17, 31, 32, 33, 64, 70, 129, 1500), page_size, 2, 32, 0, seed=1)
    for row, context_len in enumerate(case.batch.context_lens):  # behind a row's end may lie anything
        last = case.batch.page_tables[1][row, (context_len - 1) // page_size]
        for pages in (case.pages.keys, case.pages.values):
            pages[last, (context_len - 1) % page_size + 1 :] = np.nan
    decode = Decode(case, 8, 0, kind)
    assert_close(decode.run(tile=tile), decode.expected(), TOLERANCES[kind])


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("tile", [MANY_TILE, FEW_TILE, BYTE_TILE])
@pytest.mark.parametrize(("page_size", "head_dim", "window"), [(16, 32, 0), (64, 64, 0), (64, 16, 0), (32, 32, 40)])
def test_pages_in_float8(kind: str, tile: DecodeTile, page_size: int, head_dim: int, window: int):
    """Values come in pairs where tiles are whole and heads wide enough."""
    case = make_case(rows(1, 31, 33, 70, 129, 200), page_size, 2, head_dim, window, seed=1)
    decode = Decode(case, 8, window, kind, page_dtype=torch.float8_e4m3fn)
    assert_close(decode.run(tile=tile), decode.expected(), TOLERANCES[kind])


@pytest.mark.parametrize("size", [3e4, 1e6, -1e30])
def test_a_query_beyond_float16_by_pages_in_float8(size: float):
    """They meet in float16. The token whose key goes furthest along takes all of the softmax."""
    case = make_case(rows(70), 16, 1, 32, 0, seed=1)
    case.pages.keys[:, :, 0, 5] = np.arange(case.pages.keys[..., 0, 5].size).reshape(case.pages.keys.shape[:2]) % 13
    decode = Decode(case, 2, 0, "bf16", page_dtype=torch.float8_e4m3fn)
    decode.queries[:] = rounded(np.where(np.arange(32) == 5, size, 0).astype(np.float32), torch.bfloat16)
    out = decode.run()
    assert out.isfinite().all()
    assert_close(out, decode.expected(), TOLERANCES["bf16"])


@pytest.mark.parametrize("byte", range(0, 256, 51))
def test_every_number_of_float8_is_mixed_as_it_is(byte: int):
    """A context of one tile: each token has a value of its own at each place, NaN left out."""
    numbers = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float().nan_to_num(0.0).numpy()
    case = make_case(rows(17), 16, 1, 32, 0, seed=1)
    case.pages.keys[:] = 0
    every = np.arange(case.pages.values.size) * 7 + byte
    case.pages.values[:] = numbers[every % 256].reshape(case.pages.values.shape)
    decode = Decode(case, 1, 0, "f32", page_dtype=torch.float8_e4m3fn)
    assert_close(decode.run(), decode.expected(), TOLERANCES["f32"])


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("has_norms", [False, True])
@pytest.mark.parametrize("tile", [MANY_TILE, FEW_TILE])
@pytest.mark.parametrize(("head_dim", "rotary_dim", "window"), [(16, 16, 0), (24, 16, 40)])
def test_heads_as_the_projection_left_them(
    kind: str, interleaved: bool, has_norms: bool, tile: DecodeTile, head_dim: int, rotary_dim: int, window: int
):
    """Against the two kernels apart, which have twins of their own; the first row is padding."""
    dtype, num_heads, num_kv_heads, page_size = DTYPES[kind], 6, 2, 16
    lens = [0, 1, 16, 33, 70, 100]
    case = make_case(rows(*(max(1, length) for length in lens)), page_size, num_kv_heads, head_dim, window, seed=9)
    case.batch.context_lens[0] = 0
    generator = np.random.default_rng(10)
    x = on_device(generator.standard_normal((len(lens), (num_heads + 2 * num_kv_heads) * head_dim), np.float32), dtype)
    frequencies = RopeFrequencies((10.0 ** -np.linspace(0, 2, rotary_dim // 2)).astype(np.float32), interleaved)
    every = rope_table(np.arange(128, dtype=np.int32), frequencies)
    norms = None
    if has_norms:
        weights = generator.standard_normal((2, head_dim), np.float32)
        norms = HeadNorms(on_device(weights[0]), on_device(weights[1]), 1e-5, 1.0)
    fresh = FreshHeads(x, on_device(every.cos), on_device(every.sin), interleaved, norms)
    table, context_lens = on_device(case.batch.page_tables[1]), on_device(case.batch.context_lens)
    found = []
    for is_fresh in (True, False):
        workspace = decode_workspace(len(lens), num_heads, num_kv_heads, head_dim, DEVICE)
        plan = DecodePlan.of(PlanKind(num_kv_heads, window), len(lens), DEVICE)
        plan.make(context_lens)  # read before a program waits, so other launches must lie between
        keys, values = on_device(case.pages.keys, dtype), on_device(case.pages.values, dtype)
        queries, out = (poisoned((len(lens), num_heads, head_dim), dtype) for _ in range(2))
        if not is_fresh:
            places = (np.maximum(np.array(lens) - 1, 0), np.arange(len(lens)))
            positions, entries = (on_device(place.astype(np.int32)) for place in places)
            turned = (fresh.cosines, fresh.sines, interleaved, norms, positions, entries, context_lens, table)
            rope_write(queries, keys, values, x, *turned)
            queries[0] = 0
        where = (out, queries, keys, values, table, plan, SCALE, workspace)
        decode_attention(*where, tile=tile, fresh=fresh if is_fresh else None, page_tiles=PageTiles(keys, values))
        found.append([to_numpy(tensor) for tensor in (keys, values, out)])
    for actual, expected in zip(*found, strict=True):
        np.testing.assert_allclose(actual, expected, atol=3 * TOLERANCES[kind], rtol=3 * TOLERANCES[kind])


@pytest.mark.parametrize(("page_size", "window"), [(1, 0), (32, 1), (16, 16), (64, 45), (16, 1000), (64, 0)])
def test_page_sizes_and_windows(page_size: int, window: int):
    case = make_case(rows(3, 64, 97, 128), page_size, 1, 16, window, seed=2)
    decode = Decode(case, 2, window)
    assert_close(decode.run(), decode.expected(), TOLERANCES["f32"])


@pytest.mark.parametrize("head_dim", [8, 80, 128])
def test_widths_of_a_head(head_dim: int):
    decode = Decode(make_case(rows(40, 65), 16, 1, head_dim, 0, seed=3), 4, 0)
    assert_close(decode.run(), decode.expected(), TOLERANCES["f32"])


@pytest.mark.parametrize("kind", ["f32", "bf16"])
@pytest.mark.parametrize("tile", [MANY_TILE, FEW_TILE])
@pytest.mark.parametrize("context_len", [1024, 1025, 1100, 8192])
def test_many_splits_are_put_together_in_parts(
    kind: str, tile: DecodeTile, context_len: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(decode_plan, "PROGRAMS_IN_ALL", 132)
    decode = Decode(make_case(rows(context_len, 40), 64, 1, 16, 0, seed=4), 2, 0, kind)
    assert_close(decode.run(tile=tile), decode.expected(), TOLERANCES[kind])
    first, second = decode.plan.rows.tolist()
    assert first[1] == -(-context_len // 64) and second == [first[1], 1]


def test_a_row_that_is_cut_alike_has_the_same_bits_beside_anybody(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(decode_plan, "PROGRAMS_IN_ALL", 132)
    decode = Decode(make_case(rows(1100, 17, 150), 16, 1, 16, 0, seed=5), 4, 0, "f16")
    together = to_numpy(decode.run())
    for row in range(3):
        np.testing.assert_array_equal(to_numpy(decode.run([row]))[0], together[row])
    np.testing.assert_array_equal(to_numpy(decode.run([2, 0, 0])), together[[2, 0, 0]])


def test_rows_of_padding_give_zeros_and_disturb_nobody():
    case = make_case(rows(40, 50), 16, 1, 16, 0, seed=6)
    decode = Decode(case, 4, 0)
    expected = decode.expected()
    case.batch.context_lens[0] = 0
    case.batch.page_tables[1][0] = -1
    actual = to_numpy(decode.run())
    assert (actual[0] == 0).all()
    np.testing.assert_allclose(actual[1], expected[1], atol=1e-5)


def test_pages_ordered_by_head_and_queries_inside_a_wider_row():
    case = make_case(rows(40, 75), 16, 2, 16, 0, seed=7)
    decode = Decode(case, 4, 0)
    wide = torch.cat([on_device(decode.queries), poisoned((2, 4, 16), torch.float32)], dim=1)
    keys, values = (
        on_device(pages).transpose(1, 2).contiguous().transpose(1, 2) for pages in (case.pages.keys, case.pages.values)
    )
    out = poisoned((2, 4, 16), torch.float32)
    decode.plan.make(on_device(case.batch.context_lens))
    table = on_device(case.batch.page_tables[1])
    decode_attention(out, wide[:, :4], keys, values, table, decode.plan, SCALE, decode.workspace)
    assert_close(out, decode.expected(), TOLERANCES["f32"])


def test_few_rows_take_larger_tiles():
    assert decode_tile(FEW_ROWS) is FEW_TILE and decode_tile(FEW_ROWS + 1) is MANY_TILE


def test_pages_of_bytes_have_a_tile_of_their_own_but_for_a_single_row():
    assert decode_tile(1, of_bytes=True) is FEW_TILE
    assert decode_tile(2, of_bytes=True) is decode_tile(500, of_bytes=True) is BYTE_TILE


def test_whole_tiles_end_where_the_tail_begins():
    decode = Decode(make_case(rows(40), 32, 1, 32, 0, seed=1), 1, 0)
    with pytest.raises(AssertionError, match="where the tail begins"):
        decode.run(tile=DecodeTile(32, 1, 3, tail_tokens=16))
