"""Rows that begin with the same pages read them together; their bits are those of rows with pages of their own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagoda.kernels.base import KVPages, RaggedBatch
from pagoda.kernels.cpu import CpuKernels
from pagoda.kernels.cpu.library import available_instruction_sets
from tests.kernels.cpu.programs import assert_same_bits, compile_program, normal, run_twin
from tests.kernels.cpu.test_attention import KINDS, TOLERANCE, as_type, attending, native_layout

SETS = st.sampled_from(available_instruction_sets() or ("none",))
HEAD_DIM = 16


@st.composite
def trees(draw: st.DrawFn) -> list[list[int]]:
    """Page tables: each row takes some of the pages of an earlier one, then pages of its own."""
    tables: list[list[int]] = []
    used = 0
    for _ in range(draw(st.integers(2, 12))):
        parent = draw(st.sampled_from([[], *tables]))
        num_shared = draw(st.sampled_from([len(parent), len(parent) // 8 * 8, draw(st.integers(0, len(parent)))]))
        num_own = draw(st.sampled_from([1, 1, 2, 8, 17]))
        tables.append([*parent[:num_shared], *range(used, used + num_own)])
        used += num_own
    return tables


def batch_of(tables: list[list[int]], contexts: list[int], num_new: list[int]) -> RaggedBatch:
    padded = np.full((len(tables), max(map(len, tables))), -1, np.int32)
    for row, table in enumerate(tables):
        padded[row, : len(table)] = table
    num_tokens = sum(num_new)
    starts = np.cumsum([0, *num_new], dtype=np.int32)
    tokens = np.arange(num_tokens, dtype=np.int32)
    return RaggedBatch(tokens, tokens, starts, np.array(contexts, np.int32), (padded, padded))


def apart(tables: list[list[int]], pages: KVPages) -> tuple[list[list[int]], KVPages]:
    """The same rows, each with copies of its pages that nobody else has."""
    flat = [page for table in tables for page in table]
    copies = KVPages(*(None if part is None else part[flat] for part in vars(pages).values()))
    numbers = iter(range(len(flat)))
    return [[next(numbers) for _ in table] for table in tables], copies


@given(
    instruction_set=SETS,
    tables=trees(),
    kind=st.sampled_from(KINDS),
    heads_per_group=st.sampled_from([1, 3, 4, 7, 25]),
    window=st.sampled_from([0, 0, 30, 200]),
    num_threads=st.integers(1, 3),
    data=st.data(),
)
@settings(max_examples=80, deadline=None)
def test_sharing_shows_in_no_bit(instruction_set, tables, kind, heads_per_group, window, num_threads, data):
    contexts = [16 * len(table) - data.draw(st.integers(0, 15)) for table in tables]
    num_new = [data.draw(st.sampled_from([1, 1, 1, 1, 2, 9])) for _ in tables]
    num_new = [min(count, context) for count, context in zip(num_new, contexts, strict=True)]
    num_pages = 1 + max(page for table in tables for page in table)
    keys, values = normal(2, num_pages, 16, 2, HEAD_DIM, seed=num_pages)
    pages = native_layout(as_type(KVPages(keys, values), kind))
    own_tables, own_pages = apart(tables, pages)
    rows = np.arange(sum(num_new), dtype=np.int32)
    forward = attending(normal(sum(num_new), 2 * heads_per_group, HEAD_DIM), window)

    def result(tables: list[list[int]], pages: KVPages, num_threads: int) -> np.ndarray:
        program = compile_program(CpuKernels(num_threads, instruction_set), forward, [pages], 128)
        return program.run(batch_of(tables, contexts, num_new), rows)

    together = result(tables, pages, num_threads)
    assert_same_bits(together, result(own_tables, own_pages, 1))
    expected = run_twin(forward, batch_of(tables, contexts, num_new), [as_type(KVPages(keys, values), kind)])
    np.testing.assert_allclose(together, expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_the_rows_does_not_matter(kernels: CpuKernels, kind: str):
    """Nine rows under one prefix and nine under another, mixed."""
    tables = [[*range(40 * (row % 2), 40 * (row % 2) + 20), 80 + row] for row in range(18)]
    pages = native_layout(as_type(KVPages(*normal(2, 98, 16, 1, HEAD_DIM)), kind))
    contexts = [16 * 21 - row % 16 for row in range(18)]
    program = compile_program(kernels, attending(normal(18, 3, HEAD_DIM), 0), [pages], 18)
    batch = batch_of(tables, contexts, [1] * 18)
    expected = program.run(batch, np.arange(18, dtype=np.int32))
    order = np.random.default_rng(2).permutation(18)
    mixed = batch_of([tables[row] for row in order], [contexts[row] for row in order], [1] * 18)
    mixed = RaggedBatch(
        order.astype(np.int32), mixed.positions, mixed.row_starts, mixed.context_lens, mixed.page_tables
    )
    assert_same_bits(program.run(mixed, np.arange(18, dtype=np.int32)), expected[order])
