"""One vector from hidden states: the same bits however the text was cut, and no other row's business."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.core.plan import RowPayload
from pagoda.core.sampling_params import SamplingParams
from pagoda.executor.pooling import Pooler
from pagoda.kernels.base import RaggedBatch

WIDTH = 5


def payload(pooling: str, num_tokens: int) -> RowPayload:
    return RowPayload(0, np.zeros(num_tokens, np.int32), num_tokens, SamplingParams(), 0, pooling)  # type: ignore[arg-type]


def batch(counts: list[int]) -> RaggedBatch:
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    nothing = np.zeros(0, np.int32)
    return RaggedBatch(nothing, nothing, starts, nothing, ())


def pooled(hidden: np.ndarray, cuts: list[int], pooling: str) -> np.ndarray:
    """In chunks, beside another row that wants no vector."""
    pooler = Pooler()
    pooler.start(3, payload(pooling, len(hidden)))
    pooler.start(1, payload("", 7))
    edges = [0, *cuts, len(hidden)]
    for start, end in zip(edges, edges[1:], strict=False):
        step = np.concatenate([np.full((2, WIDTH), 9e9, np.float32), hidden[start:end]])
        is_last = np.array([True, end == len(hidden)])
        found = pooler.take(np.array([1, 3]), is_last, batch([2, end - start]).row_starts, step)
        assert set(found) == ({1} if end == len(hidden) else set())
    return found[1]


@given(st.integers(1, 40), st.data())
def test_chunks_change_no_bit(num_tokens: int, data: st.DataObject):
    hidden = np.random.default_rng(num_tokens).normal(size=(num_tokens, WIDTH)).astype(np.float32)
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, num_tokens - 1)), max_size=6)) if num_tokens > 1 else [])
    for pooling in ("mean", "last"):
        assert np.array_equal(pooled(hidden, cuts, pooling), pooled(hidden, [], pooling))


@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_it_is_the_mean_or_the_last_and_has_length_one(pooling: str):
    hidden = np.random.default_rng(1).normal(size=(11, WIDTH)).astype(np.float32)
    expected = hidden.mean(axis=0, dtype=np.float64) if pooling == "mean" else hidden[-1].astype(np.float64)
    expected /= np.linalg.norm(expected)
    found = pooled(hidden, [4], pooling)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert abs(float(np.linalg.norm(found)) - 1) < 1e-6


def test_a_row_that_starts_again_begins_anew():
    pooler = Pooler()
    pooler.start(0, payload("mean", 2))
    pooler.take(np.array([0]), np.array([False]), batch([1]).row_starts, np.full((1, WIDTH), 7, np.float32))
    pooler.start(0, payload("mean", 2))
    states = np.array([[1, 0, 0, 0, 0], [1, 0, 0, 0, 0]], np.float32)
    assert pooler.take(np.array([0]), np.array([True]), batch([2]).row_starts, states)[0].tolist() == [1, 0, 0, 0, 0]
    pooler.stop(0)
    assert not pooler
    pooler.start(0, payload("", 2))
    assert not pooler


def test_nothing_at_all_stays_nothing():
    assert pooled(np.zeros((3, WIDTH), np.float32), [], "mean").tolist() == [0.0] * WIDTH
