"""The same logits as transformers, however the tokens are cut into steps and wherever the pages lie."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from transformers import PreTrainedModel

from pagoda.kernels.reference import ReferenceOperators
from pagoda.models import Model
from tests.models.paged import PagedRunner
from tests.models.tiny import random_ids, reference_logits, save_and_load

TOLERANCE = 1e-4
LENGTHS = {"a": 41, "b": 7, "c": 23}


def check_parity(reference: PreTrainedModel, folder: Path) -> Model:
    model = save_and_load(reference, folder)
    prompts = {row: random_ids(length, seed) for seed, (row, length) in enumerate(LENGTHS.items())}
    expected = {row: reference_logits(reference, ids) for row, ids in prompts.items()}
    assert expected["a"].std() > 0.1, "logits this small prove nothing"
    for page_size in (16, 4):
        for step_sizes in ([64], [13, 5, 64], [1]):
            runner = PagedRunner(model, ReferenceOperators(), page_size, seed=page_size)
            compare(run(runner, prompts, step_sizes), expected)
        compare(run_staggered(PagedRunner(model, ReferenceOperators(), page_size), prompts), expected)
    return model


def compare(actual: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    for row, logits in expected.items():
        np.testing.assert_allclose(actual[row], logits, atol=TOLERANCE, rtol=0, err_msg=f"row {row}")


def run(runner: PagedRunner, prompts: dict[str, list[int]], step_sizes: list[int]) -> dict[str, np.ndarray]:
    """All rows together, so many tokens each a step; the last size repeats."""
    parts: dict[str, list[np.ndarray]] = {row: [] for row in prompts}
    left = dict(prompts)
    number = 0
    while left:
        size = step_sizes[min(number, len(step_sizes) - 1)]
        for row, logits in runner.step({row: ids[:size] for row, ids in left.items()}).items():
            parts[row].append(logits)
        left = {row: ids[size:] for row, ids in left.items() if len(ids) > size}
        number += 1
    return {row: np.concatenate(pieces) for row, pieces in parts.items()}


def run_staggered(runner: PagedRunner, prompts: dict[str, list[int]]) -> dict[str, np.ndarray]:
    """Rows join one after another: some decode token by token while others are still given their prompt."""
    parts: dict[str, list[np.ndarray]] = {row: [] for row in prompts}
    done = dict.fromkeys(prompts, 0)
    joined: list[str] = []
    while any(done[row] < len(ids) for row, ids in prompts.items()):
        joined = list(prompts)[: len(joined) + 1]
        step = {}
        for row in joined:
            size = len(prompts[row]) // 2 if done[row] == 0 else 1
            step[row] = prompts[row][done[row] : done[row] + size]
        step = {row: ids for row, ids in step.items() if ids}
        for row, logits in runner.step(step).items():
            parts[row].append(logits)
            done[row] += len(logits)
    return {row: np.concatenate(pieces) for row, pieces in parts.items()}
