"""What the device draws from logits, against the reference, with and without what the host sends."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pagoda.core.sampling_params import SamplingParams
from pagoda.decoding import SamplingState
from pagoda.executor.cuda.drawing import DeviceDraws, DrawKind, draw_kind
from pagoda.kernels.reference.sampling import sample

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
VOCAB_SIZE = 97
MAX_ROWS = 6
GREEDY = SamplingParams(temperature=0)
DRAWN = SamplingParams(temperature=0.7, seed=1)
FILTERED = SamplingParams(temperature=1.3, top_k=12, top_p=0.8, min_p=0.01, seed=2)


def state_of(*params: SamplingParams) -> SamplingState:
    state = SamplingState(MAX_ROWS)
    for row, sampling in enumerate(params):
        state.add(row, sampling, seed=(sampling.seed or 0) + (row << 40), sample_index=row)
    return state


@pytest.mark.parametrize(
    ("sampling", "kind"),
    [
        (GREEDY, DrawKind.GREEDY),
        (DRAWN, DrawKind.DRAWN),
        (FILTERED, DrawKind.FILTERED),
        (SamplingParams(temperature=0.7, typical_p=0.9), DrawKind.HOST),
        (SamplingParams(temperature=0, logprobs=2), DrawKind.HOST),
        (SamplingParams(temperature=0, presence_penalty=0.5), DrawKind.HOST),
        (SamplingParams(temperature=0, logit_bias={3: 1.0}), DrawKind.HOST),
    ],
)
def test_where_a_row_is_drawn(sampling: SamplingParams, kind: DrawKind) -> None:
    assert draw_kind(state_of(sampling).features(0)) is kind


@pytest.mark.parametrize("positions_given", [False, True])
@pytest.mark.parametrize(
    ("params", "kind"),
    [
        ([GREEDY] * 3, DrawKind.GREEDY),
        ([DRAWN, GREEDY, DRAWN], DrawKind.DRAWN),
        ([FILTERED, DRAWN, GREEDY, FILTERED], DrawKind.FILTERED),
    ],
)
def test_the_tokens_are_those_of_the_reference(
    params: list[SamplingParams], kind: DrawKind, positions_given: bool
) -> None:
    count = len(params)
    state, rows = state_of(*params), np.arange(count)
    positions = np.arange(5, 5 + count, dtype=np.int32)
    draws = DeviceDraws(MAX_ROWS, VOCAB_SIZE, DEVICE)
    for attempt in range(3):
        logits = 3 * np.random.default_rng(attempt).standard_normal((count, VOCAB_SIZE), np.float32)
        batch = state.batch(rows, positions + attempt)
        if batch.draws is not None:
            draws.send(batch.draws)
        outcomes = torch.full((2 * count,), -7, dtype=torch.int32, device=DEVICE)
        given = torch.from_numpy(positions + attempt).to(DEVICE) if positions_given else None
        draws.choose(outcomes, torch.from_numpy(logits).to(DEVICE), kind, given)
        found = outcomes.cpu().numpy()
        np.testing.assert_array_equal(found[:count], sample(logits, batch).token_ids)
        assert not found[count:].any()


def test_rows_beyond_those_sent_are_greedy_and_broken_rows_say_so() -> None:
    draws = DeviceDraws(MAX_ROWS, VOCAB_SIZE, DEVICE)
    batch = state_of(DRAWN).batch(np.arange(1), np.array([4], np.int32))
    assert batch.draws is not None
    draws.send(batch.draws)
    logits = np.random.default_rng(1).standard_normal((3, VOCAB_SIZE), np.float32)
    logits[2, 5] = np.nan
    outcomes = torch.zeros(6, dtype=torch.int32, device=DEVICE)
    draws.choose(outcomes, torch.from_numpy(logits).to(DEVICE), DrawKind.DRAWN)
    assert outcomes[1] == logits[1].argmax()
    assert outcomes[3:].tolist() == [0, 0, 1]
