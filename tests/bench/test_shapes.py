"""Shapes of steps, against sums over single tokens."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pagoda.bench.shapes import ShapeReader, StepShape
from pagoda.core.cache import CacheGroup
from pagoda.core.plan import TableUpdate
from tests.bench.plans import plan_of, start_of

FULL = CacheGroup("full", (0, 1), 2, 16)
WINDOW = CacheGroup("window", (2,), 2, 16, window=5)
PAGE = 4


def reader(*groups: CacheGroup, num_rows: int = 4, max_tokens: int = 64) -> ShapeReader:
    return ShapeReader(groups or (FULL,), PAGE, num_rows, max_tokens)


def test_a_prompt_in_chunks_and_its_answer() -> None:
    shapes = reader()
    first = shapes.read(plan_of({1: 6}, [start_of(1, (0, 1))], reading=[1]))
    assert first == StepShape(6, 0, (6,), (1 + 2 + 3 + 4 + 5 + 6,), is_decode=False)
    assert shapes.read(plan_of({1: 2})) == StepShape(2, 1, (8,), (7 + 8,), is_decode=False)
    assert shapes.read(plan_of({1: 1}, updates=[TableUpdate(1, 0, 2, (2,))])) == StepShape(1, 1, (9,), (9,), True)


def test_a_row_begins_anew_with_its_next_tenant() -> None:
    shapes = reader()
    shapes.read(plan_of({0: 8}, [start_of(0, (0, 1))]))
    assert shapes.read(plan_of({0: 3}, [start_of(0, (2,))], stopped=[0])).num_cached == (3,)


def test_a_window_bounds_what_is_read_and_seen() -> None:
    shapes = reader(WINDOW)
    assert shapes.read(plan_of({0: 8}, [start_of(0, (0, 1))])).num_pairs == (1 + 2 + 3 + 4 + 5 + 5 + 5 + 5,)
    later = shapes.read(plan_of({0: 2}, updates=[TableUpdate(0, 0, 2, (2,))]))
    assert later.num_cached == (6,), "tokens 4 to 9: the first of the two looks back as far as 4"
    assert later.num_pairs == (10,)


def test_pages_that_rows_share_are_read_once() -> None:
    """A prompt of 8 is cached in two pages; two rows go on from there, each with a page of its own."""
    shapes = reader()
    shapes.read(plan_of({0: 9}, [start_of(0, (0, 1, 2))]))
    second = shapes.read(plan_of({0: 1, 1: 1}, [start_of(1, (0, 1, 3), num_computed=8)]))
    assert second.num_cached == (8 + 2 + 1,)
    assert second.num_pairs == (10 + 9,), "every row still multiplies with all it sees"


def test_a_decoding_step_without_plans() -> None:
    assert StepShape.of_decoding((FULL, WINDOW), 3, 10) == StepShape(3, 3, (30, 15), (30, 15), True)
    assert StepShape.of_decoding((WINDOW,), 1, 2).num_cached == (2,)


@given(
    st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=5), min_size=1, max_size=4),
    st.sampled_from([0, 1, 3, 5, 40]),
    st.booleans(),
)
def test_counted_token_by_token(chunks: list[list[int]], window: int, shares: bool) -> None:
    """Rows of any chunks. Where they share, each begins with the first row's first page."""
    group = CacheGroup("window" if window else "full", (0,), 1, 16, window)
    shapes = reader(group)
    size = 16  # pages of each row's own
    tables = [[row * size + index for index in range(size)] for row in range(len(chunks))]
    begin = PAGE if shares else 0
    if shares:
        shapes.read(plan_of({0: PAGE}, [start_of(0, tables[0])]))
        for table in tables[1:]:
            table[0] = tables[0][0]
    computed = [begin] * len(chunks)
    for step in range(max(map(len, chunks))):
        rows = [row for row in range(len(chunks)) if step < len(chunks[row])]
        begun = rows if step == 0 else []
        starts = [start_of(row, tables[row], num_computed=begin) for row in begun]
        found = shapes.read(plan_of({row: chunks[row][step] for row in rows}, starts))
        cells: set[tuple[int, int]] = set()
        num_pairs = 0
        for row in rows:
            for _ in range(chunks[row][step]):
                position = computed[row]
                seen = range(max(0, position - window + 1) if window else 0, position + 1)
                num_pairs += len(seen)
                cells |= {(tables[row][place // PAGE], place % PAGE) for place in seen}
                computed[row] += 1
        assert found.num_pairs == (num_pairs,)
        assert found.num_cached == (len(cells),)
        assert found.num_tokens == sum(chunks[row][step] for row in rows)
