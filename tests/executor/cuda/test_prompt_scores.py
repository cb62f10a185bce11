"""Scores of prompts by kernels: of any pieces of a step's rows, against the reference; then under the whole engine."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pagoda.core.plan import IntArray, RowPayload
from pagoda.core.result import TokenLogprob
from pagoda.core.sampling_params import SamplingParams
from pagoda.decoding import prompt_logprobs
from pagoda.engine.loop import EngineLoop
from pagoda.engine.messages import AddRequest, PromptScores
from pagoda.executor.asked import Asked
from pagoda.executor.cuda.prompt_scores import PromptScorer
from pagoda.executor.pooling import Pooler
from tests.executor.cuda.test_compositions import one_layer, plan_of
from tests.executor.cuda.test_executor import DEVICE, cuda_loop, plain_loop, some_requests

VOCAB_SIZE = 60
MAX_TOKENS, MAX_LOGITS = 24, 5


def payload(row: int, length: int, num_top: int | None) -> RowPayload:
    ids = np.random.default_rng(row).integers(0, VOCAB_SIZE, length + 2).astype(np.int32)  # two drawn behind the prompt
    return RowPayload(row, ids, length, SamplingParams(prompt_logprobs=num_top), 0)


def by_position(scores: dict[int, tuple[tuple[int, TokenLogprob], ...]], entry: int) -> list[int]:
    return [position for position, _ in scores.get(entry, ())]


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    rows=st.lists(
        st.tuples(st.integers(1, 12), st.integers(0, 13), st.integers(1, 6), st.sampled_from([None, 0, 1, 20])),
        min_size=1,
        max_size=4,
    )
)
def test_pieces_of_prompts(rows: list[tuple[int, int, int, int | None]]) -> None:
    """Of each row: the prompt's length, what is computed of it, what the step computes, and how many of the best tokens
    are asked for. None: the row asks for no scores."""
    num_tokens = np.array([count for _, _, count, _ in rows], np.int32)
    logits = np.random.default_rng(7).standard_normal((int(num_tokens.sum()), VOCAB_SIZE), np.float32)
    scorer = PromptScorer(MAX_TOKENS, MAX_LOGITS, VOCAB_SIZE, torch.device(DEVICE))
    payloads = [payload(row, length, num_top) for row, (length, _, _, num_top) in enumerate(rows)]
    for row, one in enumerate(payloads):
        scorer.start(row, one)
    asked = Asked.by(plan_of(list(range(len(rows))), num_tokens.tolist(), ()), Pooler())
    num_computed: IntArray = np.array([computed for _, computed, _, _ in rows], np.int32)

    def logits_of(tokens: torch.Tensor) -> torch.Tensor:
        assert 0 < len(tokens) <= MAX_LOGITS
        return torch.from_numpy(logits).to(DEVICE)[tokens.long()]

    scoring = scorer.score(asked, num_computed, num_tokens, logits_of)
    found = {} if scoring is None else scorer.found(scoring)
    starts = np.cumsum(num_tokens) - num_tokens
    for entry, (length, computed, count, num_top) in enumerate(rows):
        positions = [] if num_top is None else list(range(computed + 1, min(computed + count + 1, length)))
        assert by_position(found, entry) == positions
        if num_top is None or not positions:
            continue
        own = logits[starts[entry] : starts[entry] + len(positions)]
        expected = prompt_logprobs(own, payloads[entry].token_ids[positions], num_top)
        for index, (position, score) in enumerate(found[entry]):
            assert score.token_id == payloads[entry].token_ids[position] and score.rank == expected.ranks[index]
            assert list(score.top_ids) == expected.top_token_ids[index, :num_top].tolist()
            np.testing.assert_allclose(score.logprob, expected.chosen[index], rtol=1e-6)
            np.testing.assert_allclose(score.top_logprobs, expected.top_values[index, :num_top], rtol=1e-6)


def test_a_row_that_stopped_asks_for_nothing() -> None:
    scorer = PromptScorer(MAX_TOKENS, MAX_LOGITS, VOCAB_SIZE, torch.device(DEVICE))
    scorer.start(0, payload(0, 9, 1))
    scorer.stop(0)
    scorer.stop(0)
    num_tokens = np.array([4], np.int32)
    asked = Asked.by(plan_of([0], [4], ()), Pooler())
    assert scorer.score(asked, np.zeros(1, np.int32), num_tokens, lambda tokens: pytest.fail("nobody asks")) is None


def scores_of(loop: EngineLoop, sampling: SamplingParams) -> dict[str, list[tuple[int, TokenLogprob]]]:
    """Some requests, of which the last asks for none."""
    *asking, other = some_requests(VOCAB_SIZE, sampling, 4)
    other = msgspec.structs.replace(other, sampling=msgspec.structs.replace(sampling, prompt_logprobs=None))
    loop.inbox.extend(AddRequest(request) for request in (*asking, other))
    found: dict[str, list[tuple[int, TokenLogprob]]] = {}
    while loop.has_work:
        for update in loop.step():
            if isinstance(update, PromptScores):
                found.setdefault(update.request_id, []).extend(update.scores)
    loop.scheduler.check_integrity()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("num_pages", [40, 9])
def test_prompts_in_chunks_beside_decoding_rows(num_pages: int, tmp_path: Path) -> None:
    """With too few pages rows are pushed back, and what was told is not told again."""
    model = one_layer("qwen3", tmp_path)
    sampling = SamplingParams(temperature=0.8, seed=1, max_tokens=12, prompt_logprobs=3, logprobs=1)
    found, expected = (scores_of(loop, sampling) for loop in (cuda_loop(model, num_pages), plain_loop(model)))
    assert len(expected) == 3 and found.keys() == expected.keys()
    for name, scores in expected.items():
        assert [position for position, _ in found[name]] == [position for position, _ in scores]
        for (_, own), (_, other) in zip(found[name], scores, strict=True):
            assert (own.token_id, own.rank, own.top_ids) == (other.token_id, other.rank, other.top_ids)
            np.testing.assert_allclose(
                [own.logprob, *own.top_logprobs], [other.logprob, *other.top_logprobs], atol=1e-4
            )
