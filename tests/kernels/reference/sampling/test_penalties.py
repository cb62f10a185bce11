from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import RepetitionPenaltyLogitsProcessor

from pagoda.kernels.reference.sampling.penalties import apply_penalties
from pagoda.kernels.sampling import Penalties

VOCAB_SIZE = 20
tokens = st.lists(st.integers(0, VOCAB_SIZE - 1), max_size=30)
rows_of_tokens = st.lists(st.tuples(tokens, tokens), min_size=1, max_size=4)


def strengths(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float32)


def penalties_of(
    sequences: list[tuple[list[int], list[int]]], repetition: np.ndarray, presence: np.ndarray, frequency: np.ndarray
) -> Penalties:
    cells = [
        (row, token_id, output.count(token_id))
        for row, (prompt, output) in enumerate(sequences)
        for token_id in sorted(set(prompt + output))
    ]
    columns = np.array(cells, dtype=np.int32).reshape(-1, 3).T
    return Penalties(columns[0], columns[1], columns[2], *map(strengths, (repetition, presence, frequency)))


@given(rows_of_tokens, st.integers(0, 2**32 - 1))
def test_repetition_against_transformers(sequences: list[tuple[list[int], list[int]]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 3, (len(sequences), VOCAB_SIZE)).astype(np.float32)
    repetition = rng.uniform(0.5, 2, len(sequences)).astype(np.float32)
    shaped = logits.copy()
    none = np.zeros(len(sequences))
    apply_penalties(shaped, penalties_of(sequences, repetition, none, none))
    for row, (prompt, output) in enumerate(sequences):
        seen = torch.tensor([prompt + output], dtype=torch.int64)
        processor = RepetitionPenaltyLogitsProcessor(float(repetition[row]))
        expected = processor(seen, torch.from_numpy(logits[row : row + 1].copy()))
        np.testing.assert_allclose(shaped[row], expected[0].numpy(), rtol=1e-6)


@given(rows_of_tokens, st.integers(0, 2**32 - 1))
def test_presence_and_frequency_by_their_formula(sequences: list[tuple[list[int], list[int]]], seed: int) -> None:
    """mu[j] - c[j] * frequency - (c[j] > 0) * presence, where c counts the output alone."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 3, (len(sequences), VOCAB_SIZE)).astype(np.float32)
    presence, frequency = rng.uniform(-2, 2, (2, len(sequences)))
    shaped = logits.copy()
    apply_penalties(shaped, penalties_of(sequences, np.ones(len(sequences)), presence, frequency))
    for row, (_, output) in enumerate(sequences):
        counts = np.bincount(output, minlength=VOCAB_SIZE)
        expected = logits[row] - counts * frequency[row] - (counts > 0) * presence[row]
        np.testing.assert_allclose(shaped[row], expected, rtol=1e-4, atol=1e-4)


def test_banned_tokens_stay_banned() -> None:
    logits = np.full((1, 4), -np.inf, dtype=np.float32)
    apply_penalties(logits, penalties_of([([0], [1])], np.array([0.5]), np.array([-2.0]), np.array([-2.0])))
    assert np.isneginf(logits).all()
