"""Steps of any composition, padded as graphs want them: prompts, their chunks, cached prefixes, rows that were pushed
back, all among decoding rows. The plain NumPy engine computes every request before, alone or not."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import MistralConfig, MistralForCausalLM, Qwen3Config, Qwen3ForCausalLM

from pagoda.core.plan import RowPayload, RowStart, StepPlan
from pagoda.core.request import Request
from pagoda.core.sampling_params import SamplingParams
from pagoda.engine.loop import EngineLoop
from pagoda.engine.messages import AddRequest, NewTokens
from pagoda.models import Model
from tests.executor.cuda.test_executor import PAGE_SIZE, answers, cuda_loop, plain_loop
from tests.kernels.cpu.families import SIZES
from tests.models.tiny import randomize, save_and_load

SHARED = 2 * PAGE_SIZE + 3
FEW_PAGES = 7  # so that rows are pushed back
MAX_STEPS = 300


def requests_of(vocab_size: int) -> list[Request]:
    """Of every length that a chunk, a page or a padded size begins or ends at; some begin alike."""
    rng = random.Random(11)
    shared = [rng.randrange(vocab_size) for _ in range(SHARED)]
    lengths = (1, 2, 15, 16, 17, 24, 33, 60)
    return [
        Request(
            request_id=f"r{index}",
            prompt_token_ids=tuple((shared if index % 3 == 0 else []) + [rng.randrange(vocab_size) for _ in range(n)]),
            sampling=SamplingParams(temperature=0, max_tokens=1 + index % 5),
        )
        for index, n in enumerate(lengths)
    ]


def answers_over_time(loop: EngineLoop, arrivals: list[list[Request]]) -> dict[str, list[int]]:
    """Each list comes a step after the one before."""
    found: dict[str, list[int]] = {}
    waiting = list(reversed(arrivals))
    for _ in range(MAX_STEPS):
        if waiting:
            loop.inbox.extend(AddRequest(request) for request in waiting.pop())
        elif not loop.has_work:
            break
        for update in loop.step():
            if isinstance(update, NewTokens):
                found.setdefault(update.request_id, []).extend(update.token_ids)
    loop.scheduler.check_integrity()
    return found


def one_layer(family: str, folder: Path) -> Model:
    """One is enough for what lies before, between and behind attentions, and three times as quick as three."""
    sizes = {**SIZES, "num_hidden_layers": 1}
    if family == "mistral":
        return save_and_load(randomize(MistralForCausalLM(MistralConfig(**sizes, sliding_window=20))), folder)
    return save_and_load(randomize(Qwen3ForCausalLM(Qwen3Config(**sizes))), folder)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["qwen3", "mistral"])
def test_tokens_do_not_depend_on_the_composition_of_steps(family: str, tmp_path: Path) -> None:
    model = one_layer(family, tmp_path)
    requests = requests_of(model.config.vocab_size)
    expected = {name: tokens for (name, _), tokens in answers(plain_loop(model), requests).items()}
    loops = {num_pages: cuda_loop(model, num_pages) for num_pages in (FEW_PAGES, 40)}

    @settings(max_examples=4, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
    @given(
        some=st.lists(st.sampled_from(requests), min_size=3, max_size=4, unique_by=lambda one: one.request_id),
        sizes=st.lists(st.integers(0, 2), min_size=2, max_size=5),
        num_pages=st.sampled_from(sorted(loops)),
    )
    def holds(some: list[Request], sizes: list[int], num_pages: int) -> None:
        found = answers_over_time(loops[num_pages], split(some, sizes))
        assert found == {request.request_id: expected[request.request_id] for request in some}

    holds()


def split(requests: list[Request], sizes: list[int]) -> list[list[Request]]:
    """The next so many at each step; what is left comes last."""
    left, arrivals = list(requests), []
    for size in sizes:
        arrivals.append(left[:size])
        left = left[size:]
    return [*arrivals, left]


def plan_of(rows: list[int], num_tokens: list[int], starts: tuple[RowStart, ...]) -> StepPlan:
    entries = np.array(rows, np.int32)
    return StepPlan(
        step_id=0,
        stopped=(),
        page_copies=(),
        started=starts,
        table_updates=(),
        rows=entries,
        sequences=entries.astype(np.int64),
        num_tokens=np.array(num_tokens, np.int32),
        num_drafts=np.zeros_like(entries),
        draws=np.ones(len(rows), np.bool_),
    )


@pytest.mark.slow
def test_padding_leaves_the_pages_alone(tmp_path: Path) -> None:
    """A prompt alone; then a prompt and a chunk of another beside a decoding row: only their tokens are written."""
    executor = cuda_loop(one_layer("qwen3", tmp_path)).executor
    pages = executor._pages.layers[0]  # type: ignore[attr-defined]
    ids = np.arange(40, dtype=np.int32)
    for rows, lengths, counts in (([0], [5], [5]), ([1, 2, 3], [6, 3, 9], [1, 3, 6])):
        pages.keys.fill_(7.0), pages.values.fill_(7.0)
        starts = tuple(
            RowStart(row, row, str(row), 0, length - count, ((3 * row + 1, 3 * row + 2),))
            for row, length, count in zip(rows, lengths, counts, strict=True)
        )
        payloads = [
            RowPayload(row, ids[:length], length, SamplingParams(temperature=0), 0)
            for row, length in zip(rows, lengths, strict=True)
        ]
        executor.submit(plan_of(rows, counts, starts), payloads)
        executor.collect()
        expected = np.zeros(pages.keys.shape[:2], bool)
        for row, length, count in zip(rows, lengths, counts, strict=True):
            expected[3 * row + 1, length - count : length] = True
        for tensor in (pages.keys, pages.values):
            np.testing.assert_array_equal((tensor != 7.0).any(-1).any(-1).cpu().numpy(), expected)
