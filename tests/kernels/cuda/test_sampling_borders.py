from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from pagoda.kernels.cuda import sampling_borders, sampling_candidates
from pagoda.kernels.cuda.sampling import Borders, sample_tokens, sampling_workspace
from pagoda.kernels.cuda.sampling_borders import find_borders
from pagoda.kernels.cuda.sampling_candidates import candidate_lists
from pagoda.kernels.reference.sampling import sample
from pagoda.kernels.reference.sampling.chain import candidates
from pagoda.kernels.sampling import Draws, SamplingBatch
from tests.kernels.cuda.device import DEVICE, on_device, to_numpy
from tests.kernels.cuda.draws import draw_tensors, new_draws


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("BLOCK", 256), ("LIST_BLOCK", 64)):
        monkeypatch.setattr(sampling_borders, name, value)
    for name, value in (("CHUNK", 256), ("BLOCK", 128), ("MOST_LISTED", 300)):
        monkeypatch.setattr(sampling_candidates, name, value)


def found_borders(logits: np.ndarray, draws: Draws) -> Borders:
    num_rows = len(logits)
    borders = Borders(
        torch.full((num_rows,), float("nan"), device=DEVICE),
        torch.full((num_rows,), -7, dtype=torch.int32, device=DEVICE),
    )
    lists = candidate_lists(num_rows, logits.shape[1], DEVICE)
    filters: dict[str, torch.Tensor] = {}
    if draws.top_k is not None:
        filters["top_k"] = on_device(draws.top_k)
    if draws.top_p is not None:
        filters["top_p"] = on_device(draws.top_p)
    if draws.min_p is not None:
        logs = [math.log(value) if value else -math.inf for value in draws.min_p.tolist()]
        filters["log_min_p"] = on_device(np.array(logs))
    find_borders(borders, on_device(logits), draw_tensors(draws), **filters, lists=lists)
    return borders


def assert_same_tokens(logits: np.ndarray, draws: Draws) -> None:
    borders = found_borders(logits, draws)
    values, token_ids = to_numpy(borders.logits), to_numpy(borders.token_ids)
    every = np.arange(logits.shape[1])
    for row, own in enumerate(logits):
        is_kept = (own > values[row]) | ((own == values[row]) & (every <= token_ids[row]))
        kept = np.flatnonzero(is_kept & (own > -np.inf))
        assert kept.tolist() == sorted(candidates(own, draws, row).token_ids.tolist()), row
    num_rows = len(logits)
    drawn, broken = (torch.empty(num_rows, dtype=torch.int32, device=DEVICE) for _ in range(2))
    workspace = sampling_workspace(num_rows, logits.shape[1], DEVICE)
    sample_tokens(drawn, broken, on_device(logits), workspace, draw_tensors(draws), borders)
    assert drawn.tolist() == sample(logits, SamplingBatch(num_rows, draws=draws)).token_ids.tolist()


def column(values: Any, dtype: Any) -> np.ndarray:
    return np.array(values, dtype)


ROWS = 4
LOGITS = np.random.default_rng(5).normal(0, 3, (ROWS, 600)).astype(np.float32)
TIED = np.round(LOGITS)


@pytest.mark.parametrize("logits", [LOGITS, TIED], ids=["apart", "tied"])
def test_top_k(logits: np.ndarray):
    assert_same_tokens(logits, new_draws(ROWS, 0.8, top_k=column([1, 0, 37, 5000], np.int32)))


@pytest.mark.parametrize("logits", [LOGITS, TIED], ids=["apart", "tied"])
def test_top_p(logits: np.ndarray):
    assert_same_tokens(logits, new_draws(ROWS, 0.8, top_p=column([1e-6, 0.5, 1.0, 0.95], np.float32)))


def test_min_p():
    assert_same_tokens(LOGITS, new_draws(ROWS, 1.7, min_p=column([0.0, 1.0, 0.01, 0.3], np.float32)))


@pytest.mark.parametrize("logits", [LOGITS, TIED], ids=["apart", "tied"])
def test_all_filters_at_once(logits: np.ndarray):
    filters = {
        "top_k": column([20, 3, 100, 0], np.int32),
        "top_p": column([0.7, 0.9, 0.99, 0.4], np.float32),
        "min_p": column([0.01, 0.0, 0.05, 0.2], np.float32),
    }
    assert_same_tokens(logits, new_draws(ROWS, [1.0, 0.3, 5.0, 1.0], **filters))


def test_equal_logits_everywhere():
    logits = np.full((2, 300), -0.0, np.float32)
    logits[:, ::2] = 0.0
    top_k, top_p = column([7, 0], np.int32), column([1.0, 0.1], np.float32)
    assert_same_tokens(logits, new_draws(2, 1.0, top_k=top_k, top_p=top_p))


def test_tokens_that_were_ruled_out_do_not_count():
    logits = LOGITS.copy()
    logits[:, 10:] = -np.inf
    top_k, top_p = column([3, 50, 9, 10], np.int32), column([0.9, 0.5, 1.0, 1.0], np.float32)
    assert_same_tokens(logits, new_draws(ROWS, 1.0, top_k=top_k, top_p=top_p))


def test_greedy_rows_have_no_border():
    borders = found_borders(LOGITS, new_draws(ROWS, 0.0, top_k=column([3] * ROWS, np.int32)))
    assert (to_numpy(borders.logits) == -np.inf).all()
