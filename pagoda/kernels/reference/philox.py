"""Philox4x32-10, the counter-based generator of Salmon et al. (SC 2011), and the Gumbel noise drawn from it.

A noise value is a pure function of (seed, sample index, position, draw, token id): 64 + 4 x 32 bits, exactly what the
key and the counter of the generator hold. No batch, order or choice of candidates can change it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Integers = int | npt.NDArray[Any]
Words = npt.NDArray[np.uint64]

NUM_ROUNDS = 10
NUM_LANES = 4
_MULTIPLIER_0 = np.uint64(0xD2511F53)
_MULTIPLIER_1 = np.uint64(0xCD9E8D57)
_WEYL_0 = np.uint64(0x9E3779B9)
_WEYL_1 = np.uint64(0xBB67AE85)
_LOW_HALF = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


@dataclass(frozen=True, eq=False)
class Stream:
    """One draw of one sequence: everything that names a noise value except the token id.

    Each field is one integer, or an array that broadcasts against the token ids.
    """

    seed: Integers
    sample_index: Integers
    position: Integers
    draw: Integers = 0


def philox4x32(counter: tuple[Integers, ...], key: tuple[Integers, ...]) -> tuple[Words, Words, Words, Words]:
    """Four counter words and two key words, each of 32 bits -> four random words of 32 bits, held in 64."""
    x0, x1, x2, x3 = (np.asarray(word).astype(np.uint64) for word in counter)
    key_0, key_1 = (np.asarray(word).astype(np.uint64) for word in key)
    for _ in range(NUM_ROUNDS):
        product_0 = x0 * _MULTIPLIER_0
        product_1 = x2 * _MULTIPLIER_1
        x0 = (product_1 >> _HALF) ^ (x1 ^ key_0)
        x2 = (product_0 >> _HALF) ^ (x3 ^ key_1)
        x1 = product_1 & _LOW_HALF
        x3 = product_0 & _LOW_HALF
        key_0 = (key_0 + _WEYL_0) & _LOW_HALF
        key_1 = (key_1 + _WEYL_1) & _LOW_HALF
    return x0, x1, x2, x3


def uniform(stream: Stream, token_ids: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Uniforms strictly between 0 and 1, one a token id: token t owns word t % 4 of block t // 4."""
    tokens = np.asarray(token_ids).astype(np.int64)
    return _open_unit(np.choose(tokens % NUM_LANES, _blocks(stream, tokens // NUM_LANES)))


def uniform_all(stream: Stream, vocab_size: int) -> npt.NDArray[np.float64]:
    """The uniforms of the tokens 0 .. vocab_size - 1 in one stream, at a quarter of the work."""
    words = _blocks(stream, np.arange(-(-vocab_size // NUM_LANES)))
    return _open_unit(np.stack(words, axis=-1).reshape(-1)[:vocab_size])


def gumbel(stream: Stream, token_ids: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Standard Gumbel noise, one value a token id."""
    return _to_gumbel(uniform(stream, token_ids))


def gumbel_all(stream: Stream, vocab_size: int) -> npt.NDArray[np.float64]:
    return _to_gumbel(uniform_all(stream, vocab_size))


def _blocks(stream: Stream, blocks: npt.NDArray[Any]) -> tuple[Words, Words, Words, Words]:
    seed = np.asarray(stream.seed, dtype=np.uint64)
    counter = (blocks, stream.position, stream.draw, stream.sample_index)
    return philox4x32(counter, (seed & _LOW_HALF, seed >> _HALF))


def _open_unit(words: Words) -> npt.NDArray[np.float64]:
    uniforms = words.astype(np.float64)
    uniforms += 0.5
    uniforms *= 2.0**-32
    return uniforms


def _to_gumbel(uniforms: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    # The large values decide a draw; log1p gives those of a small uniform every bit it has.
    noise = np.log1p(-uniforms)
    np.negative(noise, out=noise)
    np.log(noise, out=noise)
    return np.negative(noise, out=noise)
