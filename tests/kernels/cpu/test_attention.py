"""Attention over native pages against the twin in float64, and the exponential that stands inside it."""

from __future__ import annotations

import numpy as np
import pytest

from pagoda.kernels.base import NUMPY_TYPES, KVPages, RaggedBatch
from pagoda.kernels.cpu import CpuKernels
from pagoda.kernels.cpu.program import new_pages
from pagoda.kernels.reference.kv_types import to_bytes
from tests.kernels.cpu.programs import assert_same_bits, compile_program, flat_batch, normal, run_native, run_twin
from tests.kernels.reference.dense_weight import DenseWeight
from tests.kernels.reference.ragged import RaggedCase, Row, make_case

PAGE_SIZE = 16
KINDS = ("f32", "f16", "int8")
TOLERANCE = 3e-6


def native_layout(pages: KVPages) -> KVPages:
    """[page, slot, head, element] -> keys of [page, head, element, slot], values of [page, head, slot, element]."""
    keys, values = pages.keys.transpose(0, 2, 3, 1), pages.values.transpose(0, 2, 1, 3)
    scales = [part.transpose(0, 2, 1).copy() for part in (pages.key_scales, pages.value_scales) if part is not None]
    return KVPages(keys.copy(), values.copy(), *scales)


def as_type(pages: KVPages, kv_cache_type: str) -> KVPages:
    """The same keys and values as a cache of another type keeps them."""
    if kv_cache_type == "int8":
        (keys, key_scales), (values, value_scales) = to_bytes(pages.keys), to_bytes(pages.values)
        return KVPages(keys, values, key_scales, value_scales)
    return KVPages(*(part.astype(NUMPY_TYPES[kv_cache_type]) for part in (pages.keys, pages.values)))


def numbered(batch: RaggedBatch) -> RaggedBatch:
    """Token t looks up row t of every table of inputs."""
    tokens = np.arange(len(batch.token_ids), dtype=np.int32)
    return RaggedBatch(tokens, batch.positions, batch.row_starts, batch.context_lens, batch.page_tables)


def attending(queries: np.ndarray, window: int, scale: float = 0.3):
    num_tokens, num_heads, head_dim = queries.shape
    weight = DenseWeight(queries.reshape(num_tokens, -1))

    def forward(table, batch, layers):
        x = table.embed(weight, batch.token_ids)
        return table.attention(x.reshape(len(x), num_heads, head_dim), layers[0], batch, 1, scale, window)

    return forward


def check(kernels: CpuKernels, case: RaggedCase, heads_per_group: int, window: int, kind: str = "f32") -> None:
    batch = numbered(case.batch)
    _, _, num_kv_heads, head_dim = case.pages.keys.shape
    forward = attending(normal(len(batch.token_ids), num_kv_heads * heads_per_group, head_dim, seed=8), window)
    pages = as_type(case.pages, kind)
    expected = run_twin(forward, batch, [pages])
    # A twin that looked where nobody may would have met NaN.
    assert np.isfinite(expected).all()
    actual = run_native(kernels, forward, batch, [native_layout(pages)])
    # A score is a float32 sum over the head: what it is off by, its weight is off by as a factor.
    np.testing.assert_allclose(actual, expected, rtol=0, atol=TOLERANCE * max(1, head_dim / 32))


@pytest.mark.parametrize("heads_per_group", [*range(1, 17), 25, 50])
def test_every_number_of_query_heads(kernels: CpuKernels, heads_per_group: int):
    rows = [Row(0, 5), Row(33, 1), Row(15, 1), Row(16, 14), Row(7, 2)]
    for kind in KINDS:
        check(kernels, make_case(rows, PAGE_SIZE, 2, 16, 0, seed=heads_per_group), heads_per_group, 0, kind)


@pytest.mark.parametrize("window", [0, 1, 2, 15, 16, 17, 40, 127, 128, 129, 1000])
@pytest.mark.parametrize("heads_per_group", [1, 3])
def test_windows(kernels: CpuKernels, window: int, heads_per_group: int):
    rows = [Row(0, 1), Row(0, 50), Row(199, 1), Row(60, 30), Row(16, 1), Row(31, 2), Row(120, 140)]
    for kind in KINDS:
        check(kernels, make_case(rows, PAGE_SIZE, 1, 32, window, seed=window), heads_per_group, window, kind)


@pytest.mark.parametrize("head_dim", [16, 48, 64, 80, 128, 256])
def test_head_widths(kernels: CpuKernels, head_dim: int):
    rows = [Row(0, 20), Row(40, 3), Row(17, 1), Row(140, 1)]
    for kind in KINDS:
        check(kernels, make_case(rows, PAGE_SIZE, 3, head_dim, 0, seed=head_dim), 2, 0, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_every_context_up_to_three_hundred(instruction_set: str, kind: str):
    for num_threads in (1, 3):
        rows = [Row(length, 1) for length in range(300)]
        check(CpuKernels(num_threads, instruction_set), make_case(rows, PAGE_SIZE, 1, 16, 0, seed=1), 2, 0, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_one_row_of_a_long_context(kernels: CpuKernels, kind: str):
    """The threads share out its spans."""
    for window in (0, 900):
        check(kernels, make_case([Row(1500, 1)], PAGE_SIZE, 2, 16, window, seed=5), 3, window, kind)
        check(kernels, make_case([Row(1100, 30)], PAGE_SIZE, 1, 16, window, seed=5), 2, window, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_chunk(kernels: CpuKernels, kind: str):
    check(kernels, make_case([Row(30, 261), Row(3, 1)], PAGE_SIZE, 1, 16, 100, seed=4), 3, 100, kind)


@pytest.mark.parametrize("scale", [1.0, 30.0, 1000.0])
def test_scores_far_apart(kernels: CpuKernels, scale: float):
    case = make_case([Row(50, 9)], PAGE_SIZE, 1, 16, 0, seed=2)
    batch = numbered(case.batch)
    forward = attending(normal(9, 2, 16), 0, scale)
    actual = run_native(kernels, forward, batch, [native_layout(case.pages)])
    # A score is a float32 sum of sixteen products: what it is off by, its weight is off by as a factor.
    tolerance = 1e-6 * (1 + 40 * scale)
    np.testing.assert_allclose(actual, run_twin(forward, batch, [case.pages]), rtol=0, atol=min(tolerance, 0.2))


def test_a_row_of_no_tokens_costs_nothing(kernels: CpuKernels):
    case = make_case([Row(4, 2), Row(9, 1)], PAGE_SIZE, 1, 16, 0, seed=1)
    plain = numbered(case.batch)
    with_empty = RaggedBatch(
        plain.token_ids,
        plain.positions,
        np.array([0, 2, 2, 3], np.int32),
        plain.context_lens[[0, 0, 1]],
        tuple(table[[0, 0, 1]] for table in plain.page_tables),
    )
    forward = attending(normal(3, 2, 16), 0)
    layers = [native_layout(case.pages)]
    assert_same_bits(run_native(kernels, forward, with_empty, layers), run_native(kernels, forward, plain, layers))


def test_a_program_takes_contexts_of_any_length(kernels: CpuKernels):
    case = make_case([Row(0, 1), Row(700, 1)], PAGE_SIZE, 1, 16, 0, seed=6)
    both = numbered(case.batch)
    queries = normal(2, 2, 16)
    program = compile_program(kernels, attending(queries, 0), [native_layout(case.pages)], 2)
    for row in (0, 1, 0):
        alone = RaggedBatch(
            both.token_ids[[row]],
            both.positions[[row]],
            np.array([0, 1], np.int32),
            both.context_lens[[row]],
            tuple(table[[row]] for table in both.page_tables),
        )
        expected = run_twin(attending(queries, 0), alone, [case.pages])
        actual = program.run(alone, np.zeros(1, np.int32))
        np.testing.assert_allclose(actual, expected, rtol=0, atol=TOLERANCE)


def weights_of_scores(kernels: CpuKernels, scores: np.ndarray) -> np.ndarray:
    """The softmax of sixteen scores: keys that are the scores, values that are the unit vectors."""
    pages = new_pages(1, PAGE_SIZE, 1, 16)
    pages.keys[0, 0, 0] = scores
    pages.values[0, 0] = np.eye(16)
    batch = flat_batch(1)
    batch = RaggedBatch(
        batch.token_ids, batch.positions, batch.row_starts, np.array([16], np.int32), batch.page_tables * 2
    )
    query = np.zeros((1, 1, 16), np.float32)
    query[0, 0, 0] = 1
    return run_native(kernels, attending(query, 0, 1.0), batch, [pages])[0]


def test_the_exponential_is_good_to_a_few_units_in_the_last_place(instruction_set: str):
    kernels = CpuKernels(1, instruction_set)
    spread = np.linspace(-87, 0, 15 * 200, dtype=np.float32)
    small = -(2.0 ** -np.linspace(0, 30, 15 * 40)).astype(np.float32)
    for chunk in np.concatenate([spread, small]).reshape(-1, 15):
        weights = weights_of_scores(kernels, np.append(chunk, np.float32(0)))
        ratios = weights[:15].astype(np.float64) / weights[15]
        exact = np.exp(chunk.astype(np.float64))
        # One unit for the exponential, a half each for two products by the total's inverse.
        assert np.max(np.abs(ratios / exact - 1)) < 3.0 * 2.0**-23


def test_scores_too_small_to_count_count_nothing(instruction_set: str):
    scores = np.full(16, -np.inf, np.float32)
    scores[:5] = [0, -88, -100, -1e30, -3e38]
    weights = weights_of_scores(CpuKernels(1, instruction_set), scores)
    assert_same_bits(weights, np.eye(16, dtype=np.float32)[0])


def test_equal_scores_share_alike(kernels: CpuKernels):
    assert_same_bits(weights_of_scores(kernels, np.full(16, 1e4, np.float32)), np.full(16, 1 / 16, np.float32))


def test_a_score_that_is_no_number_shows(kernels: CpuKernels):
    scores = np.zeros(16, np.float32)
    scores[2] = np.nan
    assert np.isnan(weights_of_scores(kernels, scores)).all()
