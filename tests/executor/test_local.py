"""The local executor run by hand, plan by plan, held against transformers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from pagoda.core.plan import PageCopy, RowPayload, RowStart, StepPlan, TableUpdate
from pagoda.core.result import StepResult
from pagoda.core.sampling_params import SamplingParams
from pagoda.executor import LocalExecutor, PageStore, WorkerRows
from pagoda.executor.forward import EagerForward
from pagoda.kernels.reference import ReferenceOperators
from pagoda.models import Model
from tests.models.tiny import SMALL, random_ids, randomize, reference_logits, save_and_load

PAGE_SIZE = 4
GREEDY = SamplingParams(temperature=0)


@pytest.fixture(scope="module")
def reference() -> PreTrainedModel:
    return randomize(LlamaForCausalLM(LlamaConfig(**SMALL)), seed=2)


@pytest.fixture(scope="module")
def model(reference: PreTrainedModel, tmp_path_factory: pytest.TempPathFactory) -> Model:
    return save_and_load(reference, Path(tmp_path_factory.mktemp("tiny")))


class Device:
    """An executor and the few words it takes to give it orders."""

    def __init__(self, model: Model, end_token_ids: Sequence[int] = ()) -> None:
        groups = model.cache_groups()
        rows = WorkerRows(4, 64, PAGE_SIZE, len(groups))
        pages = PageStore(groups, [40], PAGE_SIZE)
        operators = ReferenceOperators()
        forward = EagerForward(model, operators, pages.layers)
        self.executor = LocalExecutor(operators, forward, rows, pages, end_token_ids)
        self.step_id = 0

    def step(
        self,
        work: dict[int, tuple[int, int, bool]],
        starts: Sequence[tuple[RowStart, RowPayload]] = (),
        stopped: Sequence[int] = (),
        copies: Sequence[PageCopy] = (),
        updates: Sequence[TableUpdate] = (),
    ) -> StepResult:
        """`work`: by row, (sequence, tokens, draws)."""
        self.step_id += 1
        plan = StepPlan(
            step_id=self.step_id,
            stopped=tuple(stopped),
            page_copies=tuple(copies),
            started=tuple(start for start, _ in starts),
            table_updates=tuple(updates),
            rows=np.array(list(work), np.int32),
            sequences=np.array([sequence for sequence, _, _ in work.values()], np.int64),
            num_tokens=np.array([tokens for _, tokens, _ in work.values()], np.int32),
            num_drafts=np.zeros(len(work), np.int32),
            draws=np.array([draws for _, _, draws in work.values()], np.bool_),
        )
        self.executor.submit(plan, [payload for _, payload in starts])
        assert self.executor.num_in_flight == 1
        return self.executor.collect()


def tenant(
    row: int,
    sequence: int,
    token_ids: Sequence[int],
    pages: Sequence[int],
    computed: int = 0,
    sampling: SamplingParams = GREEDY,
    num_prompt: int | None = None,
    sample_index: int = 0,
) -> tuple[RowStart, RowPayload]:
    start = RowStart(row, sequence, f"r{sequence}", sample_index, computed, (tuple(pages),))
    count = len(token_ids) if num_prompt is None else num_prompt
    return start, RowPayload(sequence, np.array(token_ids, np.int32), count, sampling, 7)


def greedy(reference: PreTrainedModel, prompt: list[int], count: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(reference_logits(reference, tokens)[-1].argmax()))
    return tokens[len(prompt) :]


def test_chunks_mixed_with_decoding_give_the_references_tokens(reference, model):
    device = Device(model)
    first, second = random_ids(5, 1), random_ids(9, 2)
    expected = [greedy(reference, first, 3), greedy(reference, second, 1)]
    result = device.step({1: (10, 5, True)}, [tenant(1, 10, first, [3, 9])])
    assert result.num_new.tolist() == [1] and result.token_ids.tolist() == expected[0][:1]
    result = device.step({1: (10, 1, True), 0: (11, 4, False)}, [tenant(0, 11, second, [7])])
    assert result.num_new.tolist() == [1, 0] and result.token_ids.tolist() == expected[0][1:2]
    updates = [TableUpdate(0, 0, 1, (20, 1))]
    result = device.step({0: (11, 5, True), 1: (10, 1, True)}, updates=updates)
    assert result.num_new.tolist() == [1, 1]
    assert result.token_ids.tolist() == [expected[1][0], expected[0][2]]


def test_a_fork_copies_its_page_and_goes_its_own_way(reference, model):
    device = Device(model)
    prompt = random_ids(7, 3)
    device.step({0: (1, 6, False)}, [tenant(0, 1, prompt, [4, 5])])
    sampled = SamplingParams(temperature=1.0, seed=7)
    fork = tenant(1, 2, prompt, [4, 6], computed=6, sampling=sampled, sample_index=1)
    result = device.step({0: (1, 1, True), 1: (2, 1, True)}, [fork], copies=[PageCopy(0, 5, 6)])
    one, other = result.token_ids.tolist()
    assert one == greedy(reference, prompt, 1)[0]
    result = device.step({0: (1, 1, True), 1: (2, 1, True)})
    expected = greedy(reference, [*prompt, one], 1)[0]
    assert result.token_ids[0] == expected
    logits = reference_logits(reference, [*prompt, other])[-1]
    assert np.isfinite(logits).all()


def test_a_tenant_that_comes_back_goes_on_where_it_was(reference, model):
    """Its tokens come with it; some of them stand in cached pages."""
    device = Device(model)
    prompt = random_ids(6, 4)
    answer = greedy(reference, prompt, 4)
    device.step({2: (1, 6, True)}, [tenant(2, 1, prompt, [8, 9])])
    device.step({2: (1, 1, True)})
    known = prompt + answer[:2]
    back = tenant(0, 1, known, [8, 30], computed=4, num_prompt=6)
    result = device.step({0: (1, 4, True)}, [back], stopped=[2])
    assert result.token_ids.tolist() == [answer[2]]
    result = device.step({0: (1, 1, True)}, updates=[TableUpdate(0, 0, 2, (31,))])
    assert result.token_ids.tolist() == [answer[3]]


def test_a_row_may_change_its_tenant_within_one_plan(reference, model):
    device = Device(model)
    first, second = random_ids(4, 5), random_ids(3, 6)
    device.step({0: (1, 4, True)}, [tenant(0, 1, first, [0, 1])])
    result = device.step({0: (2, 3, True)}, [tenant(0, 2, second, [2])], stopped=[0])
    assert result.token_ids.tolist() == greedy(reference, second, 1)
    device.step({}, stopped=[0])
    device.step({}, stopped=[0, 3])  # rows that start and stop between two plans are no error


def test_penalties_know_what_was_said_before_the_tenant_came_back(model):
    """A token of the answer is penalised as an answer's token, also after preemption."""
    few = tuple(range(40, 48))
    sampling = SamplingParams(temperature=0, presence_penalty=2.0, frequency_penalty=2.0, allowed_token_ids=few)
    prompt = random_ids(3, 9)

    def drawn(device: Device, row: int, count: int) -> list[int]:
        return [int(device.step({row: (1, 1, True)}).token_ids[0]) for _ in range(count)]

    def first(device: Device, row: int, token_ids: list[int], stopped: list[int], num_prompt: int) -> int:
        pages = [row * 10 + page for page in range(5)]
        start = tenant(row, 1, token_ids, pages, sampling=sampling, num_prompt=num_prompt)
        return int(device.step({row: (1, len(token_ids), True)}, [start], stopped).token_ids[0])

    device = Device(model)
    answer = [first(device, 0, prompt, [], 3), *drawn(device, 0, 11)]
    assert len(set(answer)) > 3
    resumed = [first(device, 1, prompt + answer[:5], [0], 3), *drawn(device, 1, 6)]
    assert resumed == answer[5:]
    as_prompt = [first(device, 2, prompt + answer[:5], [1], 8), *drawn(device, 2, 6)]
    assert as_prompt != answer[5:], "these two penalties leave the prompt alone"


def test_end_tokens_wait_for_min_tokens(model):
    sampling = SamplingParams(temperature=0, min_tokens=2, max_tokens=5, logit_bias={9: 100.0})
    device = Device(model, end_token_ids=[9])
    drawn = device.step({0: (1, 2, True)}, [tenant(0, 1, [1, 2], [0, 1], sampling=sampling)]).token_ids.tolist()
    drawn += [int(device.step({0: (1, 1, True)}).token_ids[0]) for _ in range(2)]
    assert drawn[2] == 9 and 9 not in drawn[:2]


def test_scores_are_those_of_the_reference(reference, model):
    device = Device(model)
    prompt = random_ids(6, 8)
    sampling = SamplingParams(temperature=0, logprobs=2, prompt_logprobs=1)
    logits = reference_logits(reference, prompt).astype(np.float64)
    expected = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
    plain = tenant(1, 2, [1, 2], [20])
    first = device.step({1: (2, 2, True), 0: (1, 4, False)}, [plain, tenant(0, 1, prompt, [0, 1], sampling=sampling)])
    assert list(first.prompt_logprobs) == [1] and first.logprobs == {}
    second = device.step({0: (1, 2, True)})
    scores = [*first.prompt_logprobs[1], *second.prompt_logprobs[0]]
    assert [place for place, _ in scores] == [1, 2, 3, 4, 5]
    for place, score in scores:
        assert score.token_id == prompt[place]
        assert math.isclose(score.logprob, expected[place - 1, prompt[place]], abs_tol=1e-4)
        assert score.top_ids == (int(expected[place - 1].argmax()),)
    (drawn,) = second.logprobs[0]
    assert drawn.token_id == second.token_ids[0] == expected[-1].argmax()
    assert drawn.rank == 1 and len(drawn.top_ids) == len(drawn.top_logprobs) == 2
    assert math.isclose(drawn.logprob, expected[-1].max(), abs_tol=1e-4)


def test_logits_that_are_no_numbers_are_reported(model, monkeypatch):
    monkeypatch.setattr(type(model), "logits", lambda self, operators, hidden: np.full((len(hidden), 97), np.nan))
    device = Device(model)
    result = device.step({0: (1, 1, False), 1: (2, 2, True)}, [tenant(0, 1, [1, 2], [0]), tenant(1, 2, [1, 2], [1])])
    assert result.broken == {1} and result.num_new.tolist() == [0, 1]


def test_an_empty_plan_gives_an_empty_result(model):
    device = Device(model)
    result = device.step({})
    assert len(result.num_new) == len(result.token_ids) == 0
    device.executor.close()
    assert device.executor.num_in_flight == 0
