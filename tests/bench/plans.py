"""Plans that no scheduler made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pagoda.core.plan import RowStart, StepPlan, TableUpdate


def plan_of(
    num_tokens: Mapping[int, int],
    started: Sequence[RowStart] = (),
    updates: Sequence[TableUpdate] = (),
    stopped: Sequence[int] = (),
    reading: Sequence[int] = (),
    step_id: int = 0,
) -> StepPlan:
    """`num_tokens` by row; all rows draw but those that are `reading` a prompt."""
    rows = list(num_tokens)
    return StepPlan(
        step_id=step_id,
        stopped=tuple(stopped),
        page_copies=(),
        started=tuple(started),
        table_updates=tuple(updates),
        rows=np.array(rows, np.int32),
        sequences=np.array(rows, np.int64),
        num_tokens=np.array(list(num_tokens.values()), np.int32),
        num_drafts=np.zeros(len(rows), np.int32),
        draws=np.array([row not in reading for row in rows], np.bool_),
    )


def start_of(row: int, *pages: Sequence[int], num_computed: int = 0, sequence: int = 0) -> RowStart:
    """`pages` by cache group."""
    return RowStart(row, sequence or row, f"request {row}", 0, num_computed, tuple(map(tuple, pages)))
