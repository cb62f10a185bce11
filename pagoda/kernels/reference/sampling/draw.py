"""The choice itself: the best token, or the best after Gumbel noise, which draws from the softmax."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pagoda.kernels.reference.philox import Stream, gumbel, gumbel_all
from pagoda.kernels.reference.sampling.candidates import Candidates
from pagoda.kernels.sampling import Draws, FloatArray, IntArray

# One block of random words serves four neighbouring tokens: a pool of a quarter of the vocabulary is cheaper taken from
# the noise of all of it. Short pools of many rows are cheaper joined into one call.
DENSE_SHARE = 0.25
DENSE_SIZE = 4096


def greedy(logits: FloatArray) -> IntArray:
    """The best token of each row; of equal ones the lowest id."""
    return np.argmax(logits, axis=-1).astype(np.int32)


def draw(pools: list[Candidates], draws: Draws, rows: npt.NDArray[np.int64], vocab_size: int) -> IntArray:
    """One token a pool: the best of logit + noise. Pool i belongs to the row rows[i] of the step."""
    sizes = np.array([len(pool) for pool in pools])
    sparse = np.flatnonzero(sizes < max(DENSE_SHARE * vocab_size, DENSE_SIZE))
    noise = dict(zip(sparse.tolist(), _sparse_noise(pools, draws, rows, sparse), strict=True))
    tokens = np.empty(len(pools), dtype=np.int32)
    for index, pool in enumerate(pools):
        values = noise.get(index)
        if values is None:
            values = gumbel_all(_stream(draws, rows[index]), vocab_size)[pool.token_ids]
        tokens[index] = pool.token_ids[np.argmax(pool.logits + values)]
    return tokens


def _sparse_noise(
    pools: list[Candidates], draws: Draws, rows: npt.NDArray[np.int64], sparse: npt.NDArray[np.int64]
) -> list[npt.NDArray[np.float64]]:
    """The noise of several short pools, in one call of the generator."""
    if not len(sparse):
        return []
    sizes = [len(pools[index]) for index in sparse]
    token_ids = np.concatenate([pools[index].token_ids for index in sparse])
    flat = gumbel(_stream(draws, np.repeat(rows[sparse], sizes)), token_ids)
    return np.split(flat, np.cumsum(sizes)[:-1])


def _stream(draws: Draws, rows: npt.NDArray[np.int64]) -> Stream:
    return Stream(draws.seeds[rows], draws.sample_indices[rows], draws.positions[rows])
