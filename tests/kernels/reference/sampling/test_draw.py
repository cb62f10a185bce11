from __future__ import annotations

import numpy as np
import pytest

from pagoda.kernels.reference.philox import Stream, gumbel
from pagoda.kernels.reference.sampling.candidates import Candidates
from pagoda.kernels.reference.sampling.draw import DENSE_SIZE, draw, greedy
from pagoda.kernels.sampling import Draws


def draws_of(num_rows: int, position: int = 0) -> Draws:
    return Draws(
        temperature=np.ones(num_rows, dtype=np.float32),
        seeds=np.arange(num_rows, dtype=np.uint64),
        sample_indices=np.zeros(num_rows, dtype=np.int32),
        positions=np.full(num_rows, position, dtype=np.int32),
    )


def test_greedy_takes_the_lowest_of_equals() -> None:
    logits = np.array([[1, 3, 3, 2], [0, 0, 0, 0], [-np.inf, -np.inf, -5, -5]], dtype=np.float32)
    assert greedy(logits).tolist() == [1, 0, 2]


@pytest.mark.parametrize("size", [1, 7, 100, 5000])
def test_draw_is_the_best_after_noise(size: int) -> None:
    """Few candidates and many take different ways to the same noise."""
    vocab_size, num_rows = 6000, 10
    rng = np.random.default_rng(size)
    pools = [
        Candidates(np.sort(rng.choice(vocab_size, size, replace=False)), rng.normal(0, 2, size))
        for _ in range(num_rows)
    ]
    expected = []
    for row, pool in enumerate(pools):
        scores = pool.logits + gumbel(Stream(row, 0, 3), pool.token_ids)
        expected.append(int(pool.token_ids[scores.argmax()]))
    got = draw(pools, draws_of(num_rows, position=3), np.arange(num_rows), vocab_size)
    assert got.tolist() == expected


def test_short_and_long_pools_in_one_step() -> None:
    vocab_size = DENSE_SIZE + 10
    sizes = [1, DENSE_SIZE + 10, 5, DENSE_SIZE, DENSE_SIZE - 1]
    pools = [Candidates(np.arange(size), np.zeros(size)) for size in sizes]
    together = draw(pools, draws_of(5), np.arange(5), vocab_size)
    alone = [int(draw([pools[row]], draws_of(5), np.array([row]), vocab_size)[0]) for row in range(5)]
    assert together.tolist() == alone
