"""The bits of a row are its own: whoever shares the batch, however it is cut into steps, however many threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagoda.kernels.base import RaggedBatch
from pagoda.kernels.cpu import CpuKernels
from pagoda.kernels.cpu.library import FORMATS as PACKED_FORMATS
from pagoda.kernels.cpu.library import available_instruction_sets
from pagoda.kernels.reference import ReferenceOperators
from pagoda.models import Model
from tests.kernels.cpu.blocks import random_weight
from tests.kernels.cpu.families import FAMILIES, NativeRunner, make_family
from tests.kernels.cpu.programs import assert_same_bits, compile_program, flat_batch, normal, over
from tests.kernels.cpu.test_attention import KINDS, as_type, attending, native_layout, numbered
from tests.kernels.reference.ragged import Row, make_case
from tests.models.paged import PagedRunner
from tests.models.parity import run, run_staggered
from tests.models.tiny import random_ids

TOLERANCE = 1e-4
SETS = st.sampled_from(available_instruction_sets() or ("none",))
PROMPTS = {row: random_ids(length, seed) for seed, (row, length) in enumerate({"a": 41, "b": 7, "c": 23}.items())}


def tokens_of(batch: RaggedBatch, tokens: np.ndarray) -> RaggedBatch:
    return RaggedBatch(
        tokens.astype(np.int32), batch.positions, batch.row_starts, batch.context_lens, batch.page_tables
    )


@given(SETS, st.sampled_from(PACKED_FORMATS), st.integers(1, 90), st.data())
@settings(max_examples=60)
def test_a_product_is_the_same_for_any_company(instruction_set, format_name, rows, data):
    weight = random_weight(format_name, rows, 256, seed=rows)
    x = normal(40, 256)
    forward = over(lambda table, x: table.linear(x, weight), x)
    layers = [CpuKernels(1).new_pages(1, 16, 1, 16)]
    alone = compile_program(CpuKernels(1, instruction_set), forward, layers, 40)
    first = np.zeros(1, np.int32)
    expected = np.concatenate([alone.run(tokens_of(flat_batch(1), np.array([t])), first) for t in range(40)])
    for num_threads in (1, 2, 3):
        tokens = np.array(data.draw(st.lists(st.integers(0, 39), min_size=1, max_size=40)))
        program = compile_program(CpuKernels(num_threads, instruction_set), forward, layers, 40)
        batch = tokens_of(flat_batch(len(tokens)), tokens)
        assert_same_bits(program.run(batch, np.arange(len(tokens), dtype=np.int32)), expected[tokens])


def cut(length: int, pieces: list[int]) -> list[tuple[int, int]]:
    """[0, length) in chunks of the given sizes; the last size repeats."""
    bounds, start = [], 0
    while start < length:
        stop = min(length, start + pieces[min(len(bounds), len(pieces) - 1)])
        bounds.append((start, stop))
        start = stop
    return bounds


def part(batch: RaggedBatch, row: int, start: int, stop: int) -> RaggedBatch:
    """Tokens [start, stop) of the step, all of them of one row."""
    after = batch.row_starts[row + 1] - stop
    return RaggedBatch(
        batch.token_ids[start:stop],
        batch.positions[start:stop],
        np.array([0, stop - start], np.int32),
        batch.context_lens[[row]] - after,
        tuple(table[[row]] for table in batch.page_tables),
    )


@given(
    instruction_set=SETS,
    rows=st.lists(st.builds(Row, st.integers(0, 60) | st.integers(0, 600), st.integers(1, 30)), min_size=1, max_size=4),
    heads_per_group=st.sampled_from([1, 2, 3, 5, 12, 13, 16]),
    window=st.sampled_from([0, 1, 7, 16, 33, 300]),
    kind=st.sampled_from(KINDS),
    pieces=st.lists(st.integers(1, 20), min_size=1, max_size=3),
    num_threads=st.integers(1, 3),
)
def test_attention_is_the_same_for_any_company_and_chunking(
    instruction_set, rows, heads_per_group, window, kind, pieces, num_threads
):
    case = make_case(rows, 16, 2, 16, window, seed=3)
    batch = numbered(case.batch)
    forward = attending(normal(len(batch.token_ids), 2 * heads_per_group, 16), window)
    layers = [native_layout(as_type(case.pages, kind))]
    together = compile_program(CpuKernels(num_threads, instruction_set), forward, layers, 128)
    actual = together.run(batch, np.arange(len(batch.token_ids), dtype=np.int32))
    alone = compile_program(CpuKernels(1, instruction_set), forward, layers, 128)
    for row in range(len(rows)):
        first, last = int(batch.row_starts[row]), int(batch.row_starts[row + 1])
        for start, stop in cut(last - first, pieces):
            piece = part(batch, row, first + start, first + stop)
            expected = alone.run(piece, np.arange(stop - start, dtype=np.int32))
            assert_same_bits(actual[first + start : first + stop], expected)


@cache
def family_model(family: str) -> Model:
    return make_family(family, Path(mkdtemp()))


@cache
def family_expected(family: str) -> dict[str, np.ndarray]:
    """Each row alone, in one step, in float64."""
    model = family_model(family)
    return {
        row: PagedRunner(model, ReferenceOperators(np.float64)).step({row: ids})[row] for row, ids in PROMPTS.items()
    }


def alone(runner: Callable[[], NativeRunner]) -> dict[str, np.ndarray]:
    return {row: runner().step({row: ids})[row] for row, ids in PROMPTS.items()}


@pytest.mark.parametrize("family", FAMILIES)
def test_whole_models_agree_with_float64_and_with_themselves(family: str, instruction_set: str):
    model = family_model(family)

    def runner(num_threads: int = 1, seed: int = 0) -> NativeRunner:
        return NativeRunner(model, CpuKernels(num_threads, instruction_set), seed)

    expected = alone(runner)
    for row, exact in family_expected(family).items():
        assert exact.std() > 0.1, "logits this small prove nothing"
        np.testing.assert_allclose(expected[row], exact, rtol=0, atol=TOLERANCE)
    backwards = dict(reversed(PROMPTS.items()))
    others = [
        alone(lambda: runner(2)),
        alone(lambda: runner(3, seed=5)),
        run(runner(2), PROMPTS, [64]),
        run(runner(3), backwards, [64]),
        run(runner(2, seed=3), PROMPTS, [13, 5, 64]),
        run(runner(3, seed=4), backwards, [1]),
        run_staggered(runner(2), PROMPTS),
    ]
    for other in others:
        for row in PROMPTS:
            assert_same_bits(other[row], expected[row])


@pytest.mark.parametrize("family", FAMILIES)
def test_only_the_logits_asked_for_and_the_same_ones(family: str):
    runner = NativeRunner(family_model(family), CpuKernels(2))
    expected = runner.step({"a": PROMPTS["a"]})["a"]
    again = NativeRunner(family_model(family), CpuKernels(3))
    again._grow("a", 41)
    rows = np.array([40, 0, 17], np.int32)
    assert_same_bits(again.forward.logits(again._batch({"a": PROMPTS["a"]}), rows), expected[rows])


@given(family=st.sampled_from(FAMILIES), instruction_set=SETS, num_threads=st.integers(1, 3), data=st.data())
@settings(max_examples=15)
def test_random_lives_of_random_rows(family, instruction_set, num_threads, data):
    """Each step a few rows, in any order, get a few tokens each; their logits are those they get alone."""
    model = family_model(family)
    runner = NativeRunner(model, CpuKernels(num_threads, instruction_set), num_pages=64)
    expected = alone(lambda: NativeRunner(model, CpuKernels(1, instruction_set)))
    done = dict.fromkeys(PROMPTS, 0)
    while left := [row for row in PROMPTS if done[row] < len(PROMPTS[row])]:
        chosen = data.draw(st.lists(st.sampled_from(left), min_size=1, unique=True))
        sizes = {row: data.draw(st.sampled_from([1, 1, 2, 6, 13, 30])) for row in chosen}
        step = {row: PROMPTS[row][done[row] : done[row] + size] for row, size in sizes.items()}
        for row, logits in runner.step(step).items():
            assert_same_bits(logits, expected[row][done[row] : done[row] + len(logits)])
            done[row] += len(logits)


def test_models_in_one_process_do_not_disturb_each_other():
    """One Python thread a family, each with a team size of its own, all at once."""
    prompt = PROMPTS["c"]

    def answer(family: str, num_threads: int) -> np.ndarray:
        runner = NativeRunner(family_model(family), CpuKernels(num_threads))
        return np.concatenate([runner.step({"c": [token]})["c"] for token in prompt])

    expected = [answer(family, 1) for family in FAMILIES]
    with ThreadPoolExecutor(len(FAMILIES)) as callers:
        for _ in range(3):
            answers = callers.map(answer, FAMILIES, [1, 2, 3, 2, 3])
            for actual, alone_before in zip(answers, expected, strict=True):
                assert_same_bits(actual, alone_before)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_instruction_set_gives_the_same_bits(family: str):
    model = family_model(family)
    results = [
        NativeRunner(model, CpuKernels(1, name)).step({"a": PROMPTS["a"]})["a"] for name in available_instruction_sets()
    ]
    for result in results[1:]:
        assert_same_bits(result, results[0])
