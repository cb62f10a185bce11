"""A step that does not fit its program is refused before a byte is touched; the twin refuses most of them, too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pagoda.kernels.base import KVPages, RaggedBatch
from pagoda.kernels.cpu import CpuKernels
from pagoda.kernels.cpu.program import PROBLEMS, Program
from tests.kernels.cpu.programs import compile_program, flat_batch, normal, over
from tests.kernels.reference.dense_weight import DenseWeight
from tests.kernels.reference.ragged import Row, make_batch

WINDOW = 20
ROWS = [Row(0, 3), Row(40, 2), Row(100, 1), Row(9, 0)]
HELD_FROM = [0, 21, 81, 0]  # the first token that a query of each row sees


@pytest.fixture
def pages() -> KVPages:
    return CpuKernels(1).new_pages(14, 16, 1, 16)


@pytest.fixture
def program(pages: KVPages) -> Program:
    weight = DenseWeight(normal(5, 16))

    def forward(table, batch, layers):
        x = table.embed(weight, batch.token_ids)
        heads = x.reshape(len(x), 1, 16)
        table.write_pages(heads, heads, layers[0], batch, 1)
        return table.attention(heads, layers[0], batch, 1, 1.0, WINDOW)

    return compile_program(CpuKernels(2), forward, [pages], 6)


@pytest.fixture
def batch() -> RaggedBatch:
    """Six tokens of rows whose earlier pages have passed out of the window."""
    made, num_pages = make_batch(ROWS, 16, np.random.default_rng(1))
    assert num_pages == 14
    table = made.page_tables[1]
    for row, first in enumerate(HELD_FROM):
        table[row, : first // 16] = -1
    return made


def refused(program: Program, batch: RaggedBatch, reason: str, rows: tuple[int, ...] = (0,)) -> None:
    with pytest.raises(IndexError, match=reason):
        program.run(batch, np.array(rows, np.int32))


def test_a_sound_step_runs(program: Program, batch: RaggedBatch):
    assert np.isfinite(program.run(batch, np.arange(6, dtype=np.int32))).all()


def test_every_needed_page_must_be_held_and_exist(program: Program, batch: RaggedBatch):
    for row, (first, own) in enumerate(zip(HELD_FROM, ROWS, strict=True)):
        if own.num_new == 0:
            continue  # a row without tokens needs nothing
        for number in range(first // 16, -(-own.context_len // 16)):
            for wrong in (-1, 14, 2**31 - 1, -(2**31)):
                table = batch.page_tables[1].copy()
                table[row, number] = wrong
                refused(program, replace(batch, page_tables=(table, table)), "page")


def test_a_table_that_is_too_short_or_missing(program: Program, batch: RaggedBatch):
    short = batch.page_tables[1][:, :-1]
    refused(program, replace(batch, page_tables=(short, short)), "page")
    refused(program, replace(batch, page_tables=batch.page_tables[1:]), "page")


@pytest.mark.parametrize("token", [-1, 5, 2**31 - 1])
def test_a_token_outside_the_vocabulary(program: Program, batch: RaggedBatch, token: int):
    tokens = batch.token_ids.copy()
    tokens[3] = token
    refused(program, replace(batch, token_ids=tokens), "vocabulary")


@pytest.mark.parametrize("row", [-1, 6])
def test_logits_of_a_token_that_is_not_there(program: Program, batch: RaggedBatch, row: int):
    refused(program, batch, "logits", (0, row))


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("row_starts", [1, 3, 5, 6, 6]),
        ("row_starts", [0, 3, 5, 6, 7]),
        ("row_starts", [0, 5, 3, 6, 6]),
        ("context_lens", [2, 42, 101, 9]),
        ("context_lens", [3, 42, 0, 9]),
    ],
)
def test_rows_that_do_not_fit_their_tokens(program: Program, batch: RaggedBatch, field: str, values: list[int]):
    refused(program, replace(batch, **{field: np.array(values, np.int32)}), "row_starts")


def test_more_than_the_program_was_made_for():
    kernels = CpuKernels(1)
    forward = over(lambda table, x: table.add(x, x), normal(4, 16))
    program = compile_program(kernels, forward, [kernels.new_pages(1, 16, 1, 16)], 2)
    refused(program, flat_batch(3), "more tokens")
    refused(program, flat_batch(2), "more tokens", (0, 1, 0))
    assert program.run(flat_batch(2), np.arange(2, dtype=np.int32)).shape == (2, 16)


def test_a_step_of_nothing_runs(program: Program):
    nothing = np.zeros(0, np.int32)
    tables = (np.zeros((0, 1), np.int32),) * 2
    empty = RaggedBatch(nothing, nothing, np.zeros(1, np.int32), nothing, tables)
    assert program.run(empty, nothing).shape == (0, 16)


def test_every_problem_has_words():
    assert len(set(PROBLEMS)) == len(PROBLEMS) == 6
