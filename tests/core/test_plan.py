from __future__ import annotations

import dataclasses

import msgspec
import numpy as np
import pytest

from pagoda.core.plan import PageCopy, RowStart, StepPlan, TableUpdate


def plan(num_rows: int) -> StepPlan:
    ints = np.ones(num_rows, np.int32)
    return StepPlan(1, (), (), (), (), ints, ints.astype(np.int64), ints, ints * 0, ints.astype(np.bool_))


def test_a_plan_without_rows_is_empty() -> None:
    assert plan(0).is_empty
    assert not plan(2).is_empty


def test_a_plan_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan(1).step_id = 2  # type: ignore[misc]


@pytest.mark.parametrize(
    "record",
    [PageCopy(0, 1, 2), TableUpdate(1, 0, 3, (4, 5)), RowStart(1, 2, "r", 0, 16, ((1, -1), (2, 3)), adapter_slot=4)],
)
def test_what_crosses_a_process_survives_msgpack(record: object) -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(record), type=type(record)) == record
