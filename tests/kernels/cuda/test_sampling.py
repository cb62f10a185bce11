from __future__ import annotations

import numpy as np
import pytest
import torch

from pagoda.kernels.cuda import sampling
from pagoda.kernels.cuda.sampling import sample_tokens, sampling_workspace
from pagoda.kernels.reference.philox import Stream, gumbel_all
from pagoda.kernels.reference.sampling import sample
from pagoda.kernels.sampling import Draws, SamplingBatch
from tests.kernels.cuda.device import DEVICE, DTYPES, on_device, rounded
from tests.kernels.cuda.draws import draw_tensors, new_draws


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("CHUNK", 1024), ("SMALL_CHUNK", 512), ("FEW_ROWS", 2), ("BLOCK", 256)):
        monkeypatch.setattr(sampling, name, value)


def run(logits: torch.Tensor, draws: Draws | None = None) -> tuple[list[int], list[int]]:
    num_rows, vocab_size = logits.shape
    token_ids, is_broken = (torch.full((num_rows,), -7, dtype=torch.int32, device=DEVICE) for _ in range(2))
    workspace = sampling_workspace(num_rows, vocab_size, DEVICE)
    sample_tokens(token_ids, is_broken, logits, workspace, None if draws is None else draw_tensors(draws))
    assert not workspace.num_done.any()
    return token_ids.tolist(), is_broken.tolist()


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("vocab_size", [5, 512, 1300])
def test_greedy_rows_with_ties(kind: str, vocab_size: int):
    logits = np.random.default_rng(1).normal(0, 3, (3, vocab_size)).astype(np.float32)
    logits = rounded(np.round(logits), DTYPES[kind])
    assert run(on_device(logits, DTYPES[kind])) == (logits.argmax(-1).tolist(), [0, 0, 0])


@pytest.mark.parametrize("temperature", [0.05, 1.0, 20.0])
def test_drawn_tokens_are_the_twins(temperature: float):
    logits = np.random.default_rng(2).normal(0, 3, (6, 1300)).astype(np.float32)
    draws = new_draws(6, temperature)
    assert run(on_device(logits), draws)[0] == sample(logits, SamplingBatch(6, draws=draws)).token_ids.tolist()


def test_greedy_and_drawn_rows_side_by_side():
    logits = np.random.default_rng(3).normal(0, 1, (4, 700)).astype(np.float32)
    draws = new_draws(4, [0.0, 1.0, 0.0, 2.0])
    assert run(on_device(logits), draws)[0] == sample(logits, SamplingBatch(4, draws=draws)).token_ids.tolist()


def test_tokens_that_were_ruled_out_are_never_drawn():
    logits = np.random.default_rng(4).normal(0, 1, (5, 600)).astype(np.float32)
    logits[:, 3:] = -np.inf
    draws = new_draws(5, 30.0)
    assert run(on_device(logits), draws)[0] == sample(logits, SamplingBatch(5, draws=draws)).token_ids.tolist()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_row_that_is_no_number_is_reported(temperature: float, bad: float):
    logits = np.zeros((3, 1300), np.float32)
    logits[1, 1299] = bad
    assert run(on_device(logits), new_draws(3, temperature))[1] == [0, 1, 0]


def test_a_row_with_nothing_left_answers():
    tokens, _ = run(on_device(np.full((2, 600), -np.inf, np.float32)), new_draws(2, [0.0, 1.0]))
    assert tokens == [0, 0]


@pytest.mark.parametrize("num_rows", [2, 4])
def test_scores_too_near_for_rough_arithmetic(num_rows: int):
    """Logits that undo the noise leave scores that differ in float64 alone."""
    draws = new_draws(num_rows, 1.0)
    logits = np.empty((num_rows, 600), np.float32)
    for row in range(num_rows):
        stream = Stream(draws.seeds[row], draws.sample_indices[row], draws.positions[row])
        logits[row] = -gumbel_all(stream, 600)
    assert run(on_device(logits), draws)[0] == sample(logits, SamplingBatch(num_rows, draws=draws)).token_ids.tolist()
