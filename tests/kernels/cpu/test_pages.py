"""What the native kernels write into pages has the bits of the twin, in every type of the cache."""

from __future__ import annotations

import numpy as np
import pytest

from pagoda.kernels.base import KVPages
from pagoda.kernels.cpu import CpuKernels
from pagoda.kernels.reference.paging import new_pages
from tests.kernels.cpu.programs import normal, run_native, run_twin
from tests.kernels.cpu.test_attention import KINDS, PAGE_SIZE, native_layout, numbered
from tests.kernels.reference.dense_weight import DenseWeight
from tests.kernels.reference.ragged import Row, make_batch

ROWS = [Row(0, 1), Row(15, 1), Row(16, 1), Row(5, 40), Row(31, 2)]
NUM_TOKENS = sum(row.num_new for row in ROWS)


def poisoned_pages(num_pages: int, num_kv_heads: int, head_dim: int, kind: str) -> KVPages:
    """Every byte is 0x77, so that a stray write shows."""
    pages = new_pages(num_pages, PAGE_SIZE, num_kv_heads, head_dim, kind)
    for array in vars(pages).values():
        if array is not None:
            array.view(np.uint8)[:] = 0x77
    return pages


def write_both(kernels: CpuKernels, keys: np.ndarray, values: np.ndarray, kind: str) -> tuple[KVPages, KVPages]:
    """[tokens, heads, elements] written by the kernels and by the twin, both in the native layout."""
    batch, num_pages = make_batch(ROWS, PAGE_SIZE, np.random.default_rng(3))
    num_kv_heads, head_dim = keys.shape[1:]
    weights = [DenseWeight(vectors.reshape(NUM_TOKENS, -1)) for vectors in (keys, values)]

    def forward(table, batch, layers):
        key, value = (table.embed(weight, batch.token_ids) for weight in weights)
        shape = (num_kv_heads, head_dim)
        table.write_pages(key.reshape(len(key), *shape), value.reshape(len(value), *shape), layers[0], batch, 1)
        return key

    expected = poisoned_pages(num_pages, num_kv_heads, head_dim, kind)
    actual = native_layout(expected)
    run_native(kernels, forward, numbered(batch), [actual])
    run_twin(forward, numbered(batch), [expected])
    return actual, native_layout(expected)


def assert_same_pages(actual: KVPages, expected: KVPages) -> None:
    for one, other in zip(vars(actual).values(), vars(expected).values(), strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("num_kv_heads", "head_dim"), [(1, 16), (3, 32), (2, 80), (1, 256)])
def test_each_token_goes_to_its_slot_and_nothing_else_is_touched(
    kernels: CpuKernels, num_kv_heads: int, head_dim: int, kind: str
):
    shape = (NUM_TOKENS, num_kv_heads, head_dim)
    assert_same_pages(*write_both(kernels, normal(*shape), normal(*shape, seed=1), kind))


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_of_every_size(kernels: CpuKernels, kind: str):
    """From below the smallest half to beyond the largest, zeros of both signs, halfway cases."""
    generator = np.random.default_rng(1)
    for low, high in [(-45, -38), (-12, -3), (-8, 5), (-3, 38)]:
        keys, values = (10.0 ** generator.uniform(low, high, (2, NUM_TOKENS, 2, 64))).astype(np.float32)
        keys[generator.random(keys.shape) < 0.5] *= -1
        values[generator.random(values.shape) < 0.2] = -0.0
        assert_same_pages(*write_both(kernels, keys, values, kind))
    halfway = generator.integers(-127, 127, (2, NUM_TOKENS, 2, 64)).astype(np.float32) + np.float32(0.5)
    halfway[..., 0] = 127
    assert_same_pages(*write_both(kernels, *halfway, kind))
    between_halves = (np.arange(NUM_TOKENS * 128, dtype=np.uint32) * 4096 + 0x387F0000).view(np.float32)
    between_halves = between_halves.reshape(NUM_TOKENS, 2, 64)
    assert_same_pages(*write_both(kernels, between_halves, -between_halves, kind))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_kept_as_such(kernels: CpuKernels, kind: str, broken: float):
    keys, values = normal(2, NUM_TOKENS, 2, 32)
    keys[3, 1, 17] = values[5, 0, 31] = broken
    values[7] = 0
    actual, expected = write_both(kernels, keys, values, kind)
    assert_same_pages(actual, expected)
    told = actual if kind != "int8" else KVPages(actual.key_scales, actual.value_scales)
    assert (~np.isfinite(told.keys)).any() and (~np.isfinite(told.values)).any()
