from __future__ import annotations

import numpy as np
import pytest

from pagoda.kernels.cuda import sampling_candidates
from pagoda.kernels.cuda.sampling_candidates import candidate_lists, list_candidates
from tests.kernels.cuda.device import DEVICE, on_device, to_numpy

LOGITS = np.random.default_rng(6).normal(0, 3, (3, 700)).astype(np.float32)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("CHUNK", 256), ("BLOCK", 128), ("MOST_LISTED", 200)):
        monkeypatch.setattr(sampling_candidates, name, value)


def listed(temperature: list[float], top_k: list[int]) -> list[list[int]]:
    lists = candidate_lists(3, 700, DEVICE)
    filters = {"top_k": on_device(np.array(top_k, np.int32))}
    list_candidates(lists, on_device(LOGITS), on_device(np.array(temperature, np.float32)), **filters)
    assert not lists.num_done.any()
    return [to_numpy(lists.token_ids)[row, :count].tolist() for row, count in enumerate(lists.counts.tolist())]


def test_a_list_holds_the_best_in_order_of_ids_and_one_more_than_is_asked_for():
    for row, tokens in enumerate(listed([1.0, 0.5, 3.0], [1, 20, 100])):
        best = np.argsort(-LOGITS[row], kind="stable")[: len(tokens)]
        assert tokens == sorted(best.tolist())
        assert len(tokens) > [1, 20, 100][row]


def test_too_many_candidates_are_not_listed_and_greedy_rows_have_none():
    assert [len(tokens) > 0 for tokens in listed([1.0, 1.0, 0.0], [10, 400, 10])] == [True, False, False]


def test_ruled_out_tokens_are_no_candidates():
    lists = candidate_lists(1, 700, DEVICE)
    logits = LOGITS[:1].copy()
    logits[:, 5:] = -np.inf
    list_candidates(
        lists, on_device(logits), on_device(np.ones(1, np.float32)), top_k=on_device(np.array([50], np.int32))
    )
    assert to_numpy(lists.token_ids)[0, : int(lists.counts[0])].tolist() == [0, 1, 2, 3, 4]
