"""A plan's arrays, read once for as long as the scheduler sends the same ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pagoda.core.plan import IntArray, StepPlan
from pagoda.executor.pooling import Pooler
from pagoda.executor.rows import Rows


@dataclass(frozen=True, eq=False, slots=True)
class Asked:
    """What a plan's arrays say. The scheduler sends the same arrays as long as the same rows decode."""

    plan: StepPlan
    rows: Rows
    drawing: Rows
    """Entries of the plan that draw."""
    drawers: Rows
    """Their rows."""
    wanted: IntArray
    """The tokens of the step whose logits they need. None others are computed but those of prompts to be scored."""
    num_new: IntArray
    decodes: bool
    """Every row computes its last known token and nothing else."""

    @classmethod
    def by(cls, plan: StepPlan, pooler: Pooler) -> Asked:
        assert not any(plan.num_drafts.tolist()), "this executor makes no drafts"
        rows = plan.rows.astype(np.intp)
        draws = plan.draws
        if pooler:  # those that want a vector draw no token
            draws = draws & np.array([row not in pooler for row in rows.tolist()], np.bool_)
        (drawing,) = draws.nonzero()
        wanted = (np.cumsum(plan.num_tokens)[drawing] - 1).astype(np.int32)
        decodes = len(drawing) == len(rows) == sum(plan.num_tokens.tolist())
        drawers = rows if decodes else rows[drawing]
        return cls(plan, rows, drawing, drawers, wanted, draws.astype(np.int32), decodes)

    def is_of(self, plan: StepPlan) -> bool:
        mine = self.plan
        return (
            plan.rows is mine.rows
            and plan.num_tokens is mine.num_tokens
            and plan.num_drafts is mine.num_drafts
            and plan.draws is mine.draws
        )
