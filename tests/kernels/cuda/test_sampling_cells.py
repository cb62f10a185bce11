from __future__ import annotations

import numpy as np

from pagoda.kernels.cuda.sampling_cells import add_bias, apply_penalties, keep_allowed, rule_out
from pagoda.kernels.reference.sampling import bias as twin
from pagoda.kernels.reference.sampling import penalties as twin_penalties
from pagoda.kernels.sampling import BiasCells, Penalties, TokenCells
from tests.kernels.cuda.device import on_device, to_numpy

RNG = np.random.default_rng(3)
LOGITS = RNG.normal(0, 3, (5, 400)).astype(np.float32)
ROWS = np.repeat(np.array([0, 2, 4], np.int32), 20)
TOKENS = np.concatenate([RNG.permutation(400)[:20] for _ in range(3)]).astype(np.int32)
CELLS = (on_device(ROWS), on_device(TOKENS))


def test_allowed_banned_and_favoured_tokens():
    values = RNG.normal(0, 5, len(ROWS)).astype(np.float32)
    expected, actual = LOGITS.copy(), on_device(LOGITS)
    for ours, theirs in (
        (
            lambda: add_bias(actual, *CELLS, on_device(values)),
            lambda: twin.apply_bias(expected, BiasCells(ROWS, TOKENS, values)),
        ),
        (lambda: keep_allowed(actual, *CELLS), lambda: twin.apply_allowed(expected, TokenCells(ROWS, TOKENS))),
        (
            lambda: rule_out(actual, CELLS[0][:30], CELLS[1][:30]),
            lambda: twin.apply_banned(expected, TokenCells(ROWS[:30], TOKENS[:30])),
        ),
    ):
        ours()
        theirs()
        np.testing.assert_array_equal(to_numpy(actual), expected)


def test_penalties_have_the_bits_of_the_twin():
    counts = RNG.integers(0, 4, len(ROWS)).astype(np.int32)
    strengths = [RNG.uniform(low, high, 5).astype(np.float32) for low, high in ((0.7, 1.7), (-1, 1), (-1, 1))]
    expected, actual = LOGITS.copy(), on_device(LOGITS)
    twin_penalties.apply_penalties(expected, Penalties(ROWS, TOKENS, counts, *strengths))
    apply_penalties(actual, *CELLS, on_device(counts), *map(on_device, strengths))
    np.testing.assert_array_equal(to_numpy(actual), expected)
