from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagoda.core.sampling_params import SamplingParams
from pagoda.decoding import SamplingState
from pagoda.kernels.sampling import SamplingBatch

OPTIONAL = ("draws", "allowed", "banned", "bias", "penalties", "num_logprobs")


def parts(batch: SamplingBatch) -> set[str]:
    return {name for name in OPTIONAL if getattr(batch, name) is not None}


def one_row(**fields: Any) -> SamplingBatch:
    state = SamplingState(4, eos_token_ids=(2,))
    state.add(3, SamplingParams(**fields), seed=-1, sample_index=5, prompt_token_ids=[7, 8, 7], output_token_ids=[8])
    return state.batch(np.array([3]), np.array([4]))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"temperature": 0}, set()),
        ({"temperature": 0, "top_p": 0.5, "top_k": 3, "min_p": 0.1, "typical_p": 0.5}, set()),
        ({}, {"draws"}),
        ({"temperature": 0, "allowed_token_ids": [1]}, {"allowed"}),
        ({"temperature": 0, "banned_token_ids": [1]}, {"banned"}),
        ({"temperature": 0, "min_tokens": 2}, {"banned"}),
        ({"temperature": 0, "min_tokens": 1}, set()),
        ({"temperature": 0, "logit_bias": {1: 1.0}}, {"bias"}),
        ({"temperature": 0, "repetition_penalty": 1.1}, {"penalties"}),
        ({"temperature": 0, "presence_penalty": 0.1}, {"penalties"}),
        ({"temperature": 0, "frequency_penalty": 0.1}, {"penalties"}),
        ({"temperature": 0, "logprobs": 0}, {"num_logprobs"}),
    ],
)
def test_a_batch_holds_only_what_a_row_uses(fields: dict[str, Any], expected: set[str]) -> None:
    assert parts(one_row(**fields)) == expected


@pytest.mark.parametrize(("name", "value"), [("top_k", 3), ("top_p", 0.5), ("min_p", 0.25), ("typical_p", 0.75)])
def test_filters_that_no_row_uses_are_left_out(name: str, value: float) -> None:
    draws = one_row(**{name: value}).draws
    assert draws is not None and getattr(draws, name).tolist() == [value]
    others = {"top_k", "top_p", "min_p", "typical_p"} - {name}
    assert all(getattr(draws, other) is None for other in others)


def test_keys_of_a_draw() -> None:
    draws = one_row(temperature=0.5).draws
    assert draws is not None
    assert draws.seeds.tolist() == [2**64 - 1]
    assert draws.sample_indices.tolist() == [5] and draws.positions.tolist() == [4]
    assert draws.temperature.tolist() == [0.5]


def test_a_tiny_temperature_is_greedy() -> None:
    state = SamplingState(2)
    state.add(0, SamplingParams(temperature=1e-7), seed=1)
    state.add(1, SamplingParams(temperature=1.0), seed=1)
    draws = state.batch(np.array([0, 1]), np.array([1, 1])).draws
    assert draws is not None and draws.temperature.tolist() == [0.0, 1.0]


def test_penalties_follow_what_is_observed() -> None:
    state = SamplingState(2)
    state.add(1, SamplingParams(presence_penalty=1.0), 0, prompt_token_ids=[7, 8, 7], output_token_ids=[8])
    state.observe(np.array([1]), np.array([8]))
    state.observe(np.array([1]), np.array([5]))
    penalties = state.batch(np.array([1]), np.array([6])).penalties
    assert penalties is not None
    counts = dict(zip(penalties.token_ids.tolist(), penalties.output_counts.tolist(), strict=True))
    assert counts == {7: 0, 8: 2, 5: 1}


def test_a_batch_does_not_change_after_it_is_made() -> None:
    state = SamplingState(1)
    state.add(0, SamplingParams(presence_penalty=1.0, logprobs=1, top_p=0.5), 0, prompt_token_ids=[1])
    batch = state.batch(np.array([0]), np.array([1]))
    state.observe(np.array([0]), np.array([1]))
    state.remove(0)
    state.add(0, SamplingParams(temperature=0.1), 9)
    assert batch.penalties is not None and batch.draws is not None
    assert batch.penalties.output_counts.tolist() == [0]
    assert batch.draws.temperature.tolist() == [1.0]


def test_rows_are_taken_and_given_back() -> None:
    state = SamplingState(2)
    state.add(0, SamplingParams(presence_penalty=1.0, logit_bias={1: 1.0}), seed=1, prompt_token_ids=[4])
    with pytest.raises(ValueError, match="row 0 is in use"):
        state.add(0, SamplingParams(), seed=1)
    state.remove(0)
    with pytest.raises(KeyError):
        state.remove(0)
    state.add(0, SamplingParams(temperature=0), seed=1)
    assert parts(state.batch(np.array([0]), np.array([1]))) == set()


token = st.integers(0, 30)
mixed = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 1.0]),
    presence_penalty=st.sampled_from([0.0, 1.0]),
    banned_token_ids=st.lists(token, max_size=3),
    logit_bias=st.none() | st.dictionaries(token, st.floats(-5, 5), max_size=3),
    allowed_token_ids=st.none() | st.lists(token, min_size=4, max_size=6, unique=True),
    min_tokens=st.integers(0, 3),
)


@settings(deadline=None)
@given(st.lists(st.tuples(mixed, st.lists(token, min_size=1, max_size=5)), min_size=1, max_size=6), st.data())
def test_cells_belong_to_their_rows_and_occur_once(requests: list[Any], data: st.DataObject) -> None:
    state = SamplingState(len(requests), eos_token_ids=(0,))
    for row, (params, prompt) in enumerate(requests):
        state.add(row, params, row, prompt_token_ids=prompt)
    rows = data.draw(st.permutations(range(len(requests))))
    positions = [len(requests[row][1]) for row in rows]
    batch = state.batch(np.array(rows), np.array(positions))
    cells: dict[str, set[tuple[int, int]]] = {"allowed": set(), "banned": set(), "bias": set(), "penalties": set()}
    for index, row in enumerate(rows):
        params, prompt = requests[row]
        early = {0} if params.min_tokens else set()
        cells["allowed"] |= {(index, token_id) for token_id in params.allowed_token_ids or ()}
        cells["bias"] |= {(index, token_id) for token_id in params.logit_bias or ()}
        cells["banned"] |= {(index, token_id) for token_id in early.union(params.banned_token_ids)}
        if params.presence_penalty:
            cells["penalties"] |= {(index, token_id) for token_id in prompt}
    for name, expected in cells.items():
        part = getattr(batch, name)
        got = [] if part is None else list(zip(part.rows.tolist(), part.token_ids.tolist(), strict=True))
        assert len(got) == len(set(got)) and set(got) == expected
        assert [row for row, _ in got] == sorted(row for row, _ in got)
