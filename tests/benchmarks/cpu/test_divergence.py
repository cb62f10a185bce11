"""Divergences against values worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.cpu.divergence import WindowScores, log_softmax, score, summarize


def test_log_softmax_of_logarithms_is_the_logarithms() -> None:
    rows = np.log(np.array([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]], np.float32)) + 3.0
    np.testing.assert_allclose(log_softmax(rows), np.log([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]]), atol=1e-6)


def test_log_softmax_of_huge_logits_is_finite() -> None:
    assert np.isfinite(log_softmax(np.array([[1e4, 0.0, -1e4]], np.float32))).all()


def test_divergence_of_a_half_from_a_quarter() -> None:
    """KL((1/2, 1/2) || (1/4, 3/4)) = 1/2 ln 2 + 1/2 ln 2/3."""
    reference = np.log(np.array([[0.5, 0.5]], np.float32))
    other = np.log(np.array([[0.25, 0.75]], np.float32))
    found = score(reference, other, np.array([0], np.int32))
    assert found.divergence[0] == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(2 / 3), abs=1e-6)


def test_surprise_looks_at_the_token_that_follows() -> None:
    logits = np.log(np.array([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]], np.float32))
    found = score(logits, logits, np.array([0, 1, 0], np.int32))
    np.testing.assert_allclose(found.surprise, [-math.log(0.1), -math.log(0.2)], atol=1e-6)


@pytest.mark.parametrize("step", [1, 2, 3, 64])
def test_the_step_does_not_matter(step: int) -> None:
    rng = np.random.default_rng(3)
    reference, other = rng.standard_normal((2, 7, 11)).astype(np.float32)
    token_ids = rng.integers(0, 11, 7).astype(np.int32)
    found, whole = score(reference, other, token_ids, step), score(reference, other, token_ids)
    np.testing.assert_allclose(found.divergence, whole.divergence)
    np.testing.assert_allclose(found.surprise, whole.surprise)
    assert len(found.surprise) == 6


@given(st.integers(0, 1000))
def test_divergence_is_never_negative_and_zero_of_itself(seed: int) -> None:
    rng = np.random.default_rng(seed)
    reference, other = rng.standard_normal((2, 3, 8)).astype(np.float32)
    token_ids = np.zeros(3, np.int32)
    assert (score(reference, other, token_ids).divergence > -1e-12).all()
    assert (score(reference, reference, token_ids).divergence == 0).all()


def test_summary() -> None:
    windows = [
        WindowScores(np.array([0.0, 2.0]), np.array([True, False]), np.array([math.log(2)])),
        WindowScores(np.array([3.0, 3.0]), np.array([True, True]), np.array([math.log(8)])),
    ]
    found = summarize(windows)
    assert found.num_tokens == 4
    assert found.mean == 2.0
    assert found.median == 2.5
    assert found.agreement == 0.75
    assert found.perplexity == pytest.approx(4.0)
    assert found.standard_error == pytest.approx(1.0)  # window means 1 and 3: deviation sqrt(2), over sqrt(2)
