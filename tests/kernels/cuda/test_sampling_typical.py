"""What typical_p drops, against the reference: behind a border and without, with ties, -inf and what is no number."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pagoda.kernels.cuda import sampling_typical
from pagoda.kernels.cuda.sampling import Borders
from pagoda.kernels.cuda.sampling_typical import keep_typical
from pagoda.kernels.reference.sampling.temperature import at_temperature
from pagoda.kernels.reference.sampling.top_k import keep_top_k
from pagoda.kernels.reference.sampling.typical import keep_typical as reference
from tests.kernels.cuda.device import DEVICE, on_device, to_numpy

NO_BORDER = (-np.inf, 2**31 - 1)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling_typical, "BLOCK", 64)


def kept(
    logits: np.ndarray, temperature: list[float], typical_p: list[float], borders: list[tuple[float, int]]
) -> np.ndarray:
    """The logits afterwards."""
    tensor = on_device(logits)
    values = [np.array(column) for column in zip(*borders, strict=True)]
    keep_typical(
        tensor,
        on_device(np.array(temperature, np.float32)),
        Borders(on_device(values[0].astype(np.float32)), on_device(values[1].astype(np.int32))),
        on_device(np.array(typical_p, np.float32)),
    )
    return to_numpy(tensor)


def tokens_of(logits: np.ndarray, temperature: float, typical_p: float, top_k: int = 0) -> list[int]:
    pool = at_temperature(logits, temperature)
    if top_k:
        pool = keep_top_k(pool, top_k)
    return sorted(reference(pool, float(np.float32(typical_p))).token_ids.tolist())


def border_of(logits: np.ndarray, top_k: int) -> tuple[float, int]:
    last = int(np.lexsort((np.arange(len(logits)), -logits))[top_k - 1])
    return float(logits[last]), last


@pytest.mark.parametrize("vocab_size", [5, 64, 333])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
@pytest.mark.parametrize("top_k", [0, 4, 40])
def test_what_stays_is_what_the_reference_leaves(vocab_size: int, temperature: float, top_k: int):
    shares = [0.05, 0.2, 0.5, 0.9, 0.999]
    logits = np.random.default_rng(vocab_size).normal(0, 2, (len(shares), vocab_size)).astype(np.float32)
    top_k = min(top_k, vocab_size)
    borders = [border_of(row, top_k) if top_k else NO_BORDER for row in logits]
    found = kept(logits, [temperature] * len(shares), shares, borders)
    for row, share in enumerate(shares):
        expected = tokens_of(logits[row], temperature, share, top_k)
        assert np.flatnonzero(found[row] > -np.inf).tolist() == expected
        np.testing.assert_array_equal(found[row][expected], logits[row][expected])


def test_of_equal_logits_the_first_ones_stay():
    logits = np.repeat(np.array([[2.0, 1.0, 0.5]], np.float32), 30, 1)[:, np.random.default_rng(1).permutation(90)]
    for share in (0.1, 0.3, 0.31, 0.7, 0.95):
        found = kept(logits, [1.0], [share], [NO_BORDER])
        assert np.flatnonzero(found[0] > -np.inf).tolist() == tokens_of(logits[0], 1.0, share)


def test_all_logits_alike():
    logits = np.zeros((2, 100), np.float32)
    found = kept(logits, [1.0, 1.0], [0.25, 0.505], [NO_BORDER] * 2)
    assert [int((row > -np.inf).sum()) for row in found] == [25, 51]
    assert (found[0][:25] == 0).all()


def test_a_share_of_one_leaves_the_row_alone():
    logits = np.random.default_rng(2).normal(0, 3, (2, 200)).astype(np.float32)
    found = kept(logits, [0.7, 0.7], [1.0, 1.0], [NO_BORDER, border_of(logits[1], 7)])
    np.testing.assert_array_equal(found, logits)


def test_tokens_that_were_ruled_out_stay_out_and_weigh_nothing():
    logits = np.random.default_rng(3).normal(0, 2, (1, 150)).astype(np.float32)
    logits[0, ::3] = -np.inf
    found = kept(logits, [1.0], [0.6], [NO_BORDER])
    inside = np.flatnonzero(logits[0] > -np.inf)
    expected = inside[tokens_of(logits[0][inside], 1.0, 0.6)]
    assert np.flatnonzero(found[0] > -np.inf).tolist() == expected.tolist()


def test_greedy_rows_and_what_is_no_number_are_left_alone():
    logits = np.random.default_rng(4).normal(0, 2, (4, 100)).astype(np.float32)
    logits[1, 7], logits[2, 8] = np.nan, np.inf
    logits[3] = -np.inf
    found = kept(logits, [0.0, 1.0, 1.0, 1.0], [0.5] * 4, [NO_BORDER] * 4)
    np.testing.assert_array_equal(found[0], logits[0])
    assert np.isnan(found[1, 7]) and found[2, 8] == np.inf and (found[3] == -np.inf).all()


@pytest.mark.skipif(torch.cuda.is_available(), reason="one large vocabulary is enough")
def test_a_large_vocabulary(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sampling_typical, "BLOCK", 1024)
    logits = np.random.default_rng(5).normal(0, 2.5, (1, 40_000)).astype(np.float32)
    found = kept(logits, [0.9], [0.8], [NO_BORDER])
    assert np.flatnonzero(found[0] > -np.inf).tolist() == tokens_of(logits[0], 0.9, 0.8)
    assert DEVICE == "cpu"
