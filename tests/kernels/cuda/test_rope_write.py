from __future__ import annotations

import numpy as np
import pytest
import torch

from pagoda.kernels.base import RopeFrequencies
from pagoda.kernels.cuda.rope_write import HeadNorms, rope_write
from pagoda.kernels.reference.norm import rms_norm
from pagoda.kernels.reference.rope import rope, rope_table
from tests.kernels.cuda.device import assert_close, on_device, poisoned, to_numpy

PAGE_SIZE = 4
EPSILON = 1e-5
# Two entries of three and two tokens, and one of padding.
POSITIONS = np.array([2, 3, 4, 0, 1, 0], np.int32)
ENTRIES = np.array([0, 0, 0, 1, 1, 2], np.int32)
CONTEXT_LENS = np.array([5, 2, 0], np.int32)
TABLES = np.array([[6, 3], [1, -1], [0, 0]], np.int32)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("has_norms", [False, True])
@pytest.mark.parametrize(("num_heads", "num_kv_heads", "head_dim", "rotary_dim"), [(4, 2, 16, 16), (6, 3, 24, 16)])
def test_queries_are_turned_and_keys_and_values_lie_in_their_pages(
    interleaved: bool, has_norms: bool, num_heads: int, num_kv_heads: int, head_dim: int, rotary_dim: int
) -> None:
    generator = np.random.default_rng(3)
    num_tokens = len(POSITIONS)
    x = generator.standard_normal((num_tokens, (num_heads + 2 * num_kv_heads) * head_dim), np.float32)
    frequencies = RopeFrequencies((10.0 ** -np.linspace(0, 2, rotary_dim // 2)).astype(np.float32), interleaved)
    every = rope_table(np.arange(8, dtype=np.int32), frequencies)
    weights = generator.standard_normal((2, head_dim), np.float32)
    norms = HeadNorms(on_device(weights[0]), on_device(weights[1]), EPSILON, 1.0) if has_norms else None
    queries = poisoned((num_tokens, num_heads, head_dim), torch.float32)
    keys, values = (poisoned((8, PAGE_SIZE, num_kv_heads, head_dim), torch.float32) for _ in range(2))
    places = (on_device(POSITIONS), on_device(ENTRIES), on_device(CONTEXT_LENS), on_device(TABLES))
    rope_write(
        queries, keys, values, on_device(x), on_device(every.cos), on_device(every.sin), interleaved, norms, *places
    )

    heads = x.reshape(num_tokens, -1, head_dim)
    q, k, v = heads[:, :num_heads], heads[:, num_heads : num_heads + num_kv_heads], heads[:, num_heads + num_kv_heads :]
    if has_norms:
        q, k = rms_norm(q, weights[0], EPSILON, 1.0), rms_norm(k, weights[1], EPSILON, 1.0)
    table = rope_table(POSITIONS, frequencies)
    q, k = rope(q, table, np.float64), rope(k, table, np.float64)
    is_real = CONTEXT_LENS[ENTRIES] > 0
    assert_close(queries[: is_real.sum()], q[is_real], 3e-6)
    pages, slots = TABLES[ENTRIES, POSITIONS // PAGE_SIZE], POSITIONS % PAGE_SIZE
    for stored, expected in ((keys, k), (values, v)):
        found = to_numpy(stored)
        np.testing.assert_allclose(found[pages, slots][is_real], expected[is_real], rtol=0, atol=1e-5)
        assert np.isnan(found).all(axis=(2, 3)).sum() == 8 * PAGE_SIZE - is_real.sum(), "a token went elsewhere"


def test_keys_and_values_rounded_to_float8() -> None:
    """Numbers beyond the largest float8 become that one."""
    generator = np.random.default_rng(4)
    x = generator.standard_normal((len(POSITIONS), 4 * 16), np.float32)
    x[0, -16:] = 1e4
    every = rope_table(np.arange(8, dtype=np.int32), RopeFrequencies(np.ones(8, np.float32), False))
    tables = on_device(every.cos), on_device(every.sin)
    places = (on_device(POSITIONS), on_device(ENTRIES), on_device(CONTEXT_LENS), on_device(TABLES))
    found = []
    for dtype in (torch.float32, torch.float8_e4m3fn):
        queries = poisoned((len(POSITIONS), 2, 16), torch.float32)
        keys, values = (torch.zeros((8, PAGE_SIZE, 1, 16), device=queries.device).to(dtype) for _ in range(2))
        rope_write(queries, keys, values, on_device(x), *tables, False, None, *places)
        found.append(torch.stack([keys.float(), values.float()]).cpu())
    plain, narrow = found
    expected = plain.clamp(-448, 448).to(torch.float8_e4m3fn).float()
    assert plain.max() > 448 and torch.equal(narrow, expected)
