"""The fake executor notices what a plan gets wrong; otherwise the tests that rest on it would prove nothing."""

from __future__ import annotations

import pytest

from pagoda.core.errors import EngineError
from pagoda.core.plan import PageCopy, RowStart, StepPlan, TableUpdate
from tests.engine.fake_engine import FULL, WINDOW, FakeEngine, Shape, request


def damaged(field: str, change) -> FakeEngine:
    """An engine whose every plan loses something on its way to the executor."""
    engine = FakeEngine(Shape(groups=(FULL, WINDOW), num_pages=40))
    submit = engine.executor.submit

    def submit_damaged(plan: StepPlan, payloads) -> None:
        object.__setattr__(plan, field, change(getattr(plan, field)))
        submit(plan, payloads)

    engine.executor.submit = submit_damaged  # type: ignore[method-assign]
    for number in range(6):
        engine.add(request(f"r{number}", [1, 2, 3, 4, 5, 6, 7, 8, 9, number], n=3, max_tokens=20, ignore_eos=True))
    return engine


def other_page(update: TableUpdate) -> TableUpdate:
    return update._replace(pages=tuple((page + 1) % 40 for page in update.pages))


def one_more(start: RowStart) -> RowStart:
    return RowStart(
        start.row, start.sequence, start.request_id, start.sample_index, start.num_computed + 1, start.page_tables
    )


def other_target(copy: PageCopy) -> PageCopy:
    return copy._replace(target=(copy.target + 1) % 40)


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("page_copies", lambda copies: ()),
        ("page_copies", lambda copies: tuple(map(other_target, copies))),
        ("table_updates", lambda updates: ()),
        ("table_updates", lambda updates: tuple(map(other_page, updates))),
        ("stopped", lambda rows: ()),
        ("started", lambda starts: tuple(map(one_more, starts))),
        ("rows", lambda rows: rows[::-1].copy()),
        ("num_tokens", lambda counts: counts + 1),
    ],
)
def test_a_damaged_plan_does_not_go_unnoticed(field, change):
    engine = damaged(field, change)
    with pytest.raises((AssertionError, EngineError)):
        engine.run(most=300)
        engine.check_answers()


def test_an_undamaged_plan_passes():
    engine = damaged("stopped", lambda rows: rows)
    engine.run()
    engine.check_answers()
