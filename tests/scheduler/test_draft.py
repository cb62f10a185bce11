from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from pagoda.core.plan import PageCopy, RowStart, StepPlan, TableUpdate
from pagoda.scheduler.draft import PlanDraft, plan_digest


def make_plan() -> StepPlan:
    return StepPlan(
        step_id=5,
        stopped=(2,),
        page_copies=(PageCopy(0, 1, 2),),
        started=(RowStart(1, 9, "r", 0, 4, ((1, 2),)),),
        table_updates=(TableUpdate(1, 0, 2, (7,)),),
        rows=np.array([0, 1], np.int32),
        sequences=np.array([3, 9], np.int64),
        num_tokens=np.array([1, 2], np.int32),
        num_drafts=np.array([0, 1], np.int32),
        draws=np.array([True, True]),
    )


def test_equal_plans_have_equal_digests() -> None:
    assert plan_digest(make_plan()) == plan_digest(make_plan())


@pytest.mark.parametrize(
    "change",
    [
        {"step_id": 6},
        {"stopped": ()},
        {"page_copies": (PageCopy(0, 1, 3),)},
        {"started": (RowStart(1, 9, "r", 0, 4, ((1, 3),)),)},
        {"table_updates": (TableUpdate(1, 0, 2, (8,)),)},
        {"rows": np.array([0, 2], np.int32)},
        {"sequences": np.array([3, 8], np.int64)},
        {"num_tokens": np.array([1, 3], np.int32)},
        {"num_drafts": np.array([0, 0], np.int32)},
        {"draws": np.array([True, False])},
    ],
)
def test_any_change_shows_in_the_digest(change: dict[str, object]) -> None:
    assert plan_digest(dataclasses.replace(make_plan(), **change)) != plan_digest(make_plan())  # type: ignore[arg-type]


def test_whoever_is_pushed_back_leaves_no_trace_in_the_plan() -> None:
    draft = PlanDraft(1, [], [TableUpdate(4, 0, 0, (1,)), TableUpdate(5, 0, 0, (2,))])
    draft.started.append(RowStart(4, 9, "r", 0, 0, ((),)))
    draft.grants[4] = (3, True)
    draft.held_back.add(4)
    draft.take_back(4)
    assert (draft.started, draft.grants, draft.held_back) == ([], {}, set())
    assert draft.table_updates == [TableUpdate(5, 0, 0, (2,))]


def test_added_pages_become_one_update_for_each_group() -> None:
    draft = PlanDraft(1, [], [])
    draft.add_pages(3, 7, [[1, 2], []])
    assert draft.table_updates == [TableUpdate(3, 0, 7, (1, 2))]
