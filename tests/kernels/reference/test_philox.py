from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.kernels.reference.philox import Stream, gumbel, gumbel_all, philox4x32, uniform, uniform_all

ONES = 0xFFFFFFFF
# The file of known answers that Random123 publishes, its lines for philox4x32 with 10 rounds.
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ((ONES,) * 4, (ONES,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]

words = st.integers(0, ONES)
streams = st.builds(
    Stream, seed=st.integers(0, 2**64 - 1), sample_index=st.integers(0, 15), position=st.integers(0, 2**31 - 1)
)


def chi_square(counts: np.ndarray, expected: np.ndarray) -> float:
    return float(((counts - expected) ** 2 / expected).sum())


def chi_square_limit(freedom: int) -> float:
    """The value that chance exceeds once in a million (Wilson and Hilferty)."""
    return freedom * (1 - 2 / (9 * freedom) + 4.75 * (2 / (9 * freedom)) ** 0.5) ** 3


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_ANSWERS)
def test_known_answers(counter: tuple[int, ...], key: tuple[int, ...], answer: str) -> None:
    assert " ".join(f"{int(word):08x}" for word in philox4x32(counter, key)) == answer


def philox_by_integers(counter: list[int], key: list[int]) -> list[int]:
    """The rounds of the paper, in Python integers."""
    for _ in range(10):
        high_0, low_0 = divmod(counter[0] * 0xD2511F53, 1 << 32)
        high_1, low_1 = divmod(counter[2] * 0xCD9E8D57, 1 << 32)
        counter = [high_1 ^ counter[1] ^ key[0], low_1, high_0 ^ counter[3] ^ key[1], low_0]
        key = [(key[0] + 0x9E3779B9) % (1 << 32), (key[1] + 0xBB67AE85) % (1 << 32)]
    return counter


@given(st.lists(st.tuples(*[words] * 6), min_size=1, max_size=8))
def test_vectorised_rounds(inputs: list[tuple[int, ...]]) -> None:
    columns = np.array(inputs, dtype=np.uint64).T
    got = np.stack(philox4x32(tuple(columns[:4]), tuple(columns[4:])), axis=-1)
    assert got.tolist() == [philox_by_integers(list(row[:4]), list(row[4:])) for row in inputs]


@given(streams, st.lists(st.integers(0, 262_143), min_size=1, max_size=30))
def test_a_value_depends_on_its_token_alone(stream: Stream, token_ids: list[int]) -> None:
    together = gumbel(stream, np.array(token_ids))
    alone = [gumbel(stream, np.array([token_id]))[0] for token_id in token_ids]
    assert together.tolist() == alone
    assert gumbel(stream, np.array(token_ids[::-1])).tolist() == alone[::-1]


@given(streams, st.integers(1, 70))
def test_whole_vocabulary_equals_its_tokens(stream: Stream, vocab_size: int) -> None:
    assert np.array_equal(gumbel_all(stream, vocab_size), gumbel(stream, np.arange(vocab_size)))


@given(st.lists(streams, min_size=1, max_size=6))
def test_arrays_of_streams(several: list[Stream]) -> None:
    batch = Stream(
        np.array([stream.seed for stream in several], dtype=np.uint64),
        np.array([stream.sample_index for stream in several]),
        np.array([stream.position for stream in several]),
    )
    token_ids = np.arange(len(several)) * 7
    alone = [gumbel(stream, token_ids[index : index + 1])[0] for index, stream in enumerate(several)]
    assert gumbel(batch, token_ids).tolist() == alone


def test_every_part_of_the_name_counts() -> None:
    names = [
        (seed, sample, position, draw)
        for seed in (0, 1, 1 << 32, 2**64 - 1)
        for sample in (0, 1, 2)
        for position in (0, 1, 2**31 - 1)
        for draw in (0, 1)
    ]
    values = {tuple(uniform(Stream(*name), np.arange(4))) for name in names}
    assert len(values) == len(names)


def test_uniforms_never_touch_the_ends() -> None:
    from pagoda.kernels.reference import philox

    ends = philox._open_unit(np.array([0, ONES], dtype=np.uint64))
    assert 0.0 < ends[0] < 2.0**-32 and 1.0 - 2.0**-32 < ends[1] < 1.0
    assert np.isfinite(philox._to_gumbel(ends)).all()


def test_uniforms_are_even() -> None:
    values = uniform_all(Stream(12345, 0, 7), 400_000)
    counts = np.histogram(values, bins=256, range=(0, 1))[0]
    assert chi_square(counts, np.full(256, 400_000 / 256)) < chi_square_limit(255)


@pytest.mark.parametrize("axis", ["seed", "sample_index", "position", "draw"])
def test_neighbours_are_independent(axis: str) -> None:
    """Pairs of values whose names differ by one in one place fill a 16 x 16 grid evenly."""
    names = {"seed": 5, "sample_index": 3, "position": 100, "draw": 0}
    first = np.concatenate([uniform_all(Stream(**(names | {axis: 2 * step})), 1000) for step in range(200)])
    second = np.concatenate([uniform_all(Stream(**(names | {axis: 2 * step + 1})), 1000) for step in range(200)])
    counts = np.histogram2d(first, second, bins=16, range=[(0, 1), (0, 1)])[0]
    assert chi_square(counts, np.full((16, 16), len(first) / 256)) < chi_square_limit(255)
    assert abs(np.corrcoef(first, second)[0, 1]) < 5 / len(first) ** 0.5


def test_neighbouring_tokens_are_independent() -> None:
    values = uniform_all(Stream(99, 0, 0), 400_000)
    counts = np.histogram2d(values[:-1], values[1:], bins=16, range=[(0, 1), (0, 1)])[0]
    assert chi_square(counts, np.full((16, 16), (len(values) - 1) / 256)) < chi_square_limit(255)


def test_gumbel_moments() -> None:
    noise = gumbel_all(Stream(7, 0, 1), 400_000)
    assert abs(noise.mean() - np.euler_gamma) < 5 * (np.pi / 6**0.5) / len(noise) ** 0.5
    assert abs(noise.var() - np.pi**2 / 6) < 0.03


@pytest.mark.parametrize("probabilities", [[0.5, 0.25, 0.125, 0.125], [0.9, 0.09, 0.009, 0.001], [1 / 7] * 7])
def test_argmax_of_noise_draws_from_the_softmax(probabilities: list[float]) -> None:
    expected = np.array(probabilities)
    num_draws = 40_000
    seeds = np.arange(num_draws, dtype=np.uint64)[:, None]
    scores = np.log(expected) + gumbel(Stream(seeds, 0, 0), np.arange(len(expected))[None, :])
    counts = np.bincount(scores.argmax(axis=1), minlength=len(expected))
    assert chi_square(counts, expected * num_draws) < chi_square_limit(len(expected) - 1)
