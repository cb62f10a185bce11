"""A step in two parts, for when there is no memory for the whole of it, and their results as one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from pagoda.core.errors import EngineError
from pagoda.core.plan import StepPlan
from pagoda.core.result import StepResult, TokenLogprob

logger = logging.getLogger(__name__)
STEPS_A_WARNING = 100


class Halving:
    """`compute` runs a plan to its end, or runs out of memory before it has changed any row."""

    def __init__(self, compute: Callable[[StepPlan], StepResult]) -> None:
        self._compute = compute
        self.num_steps = 0

    def run(self, plan: StepPlan, reason: str) -> StepResult:
        """One half after the other, and each again in halves as long as there is too little memory."""
        halves = halve(plan)
        if halves is None:
            raise EngineError(f"there is no memory for one token: {reason}")
        if self.num_steps % STEPS_A_WARNING == 0:
            num_tokens = int(plan.num_tokens.sum())
            logger.warning("memory ran out in a step of %d tokens, which is done in halves: %s", num_tokens, reason)
        self.num_steps += 1
        return join(plan, halves, (self._try(halves[0]), self._try(halves[1])))

    def _try(self, plan: StepPlan) -> StepResult:
        try:
            return self._compute(plan)
        except RuntimeError as error:
            reason = out_of_memory(error)
        return self.run(plan, reason)  # out of the handler, where the memory of the failed step is free


def is_out_of_memory(error: RuntimeError) -> bool:
    """Triton and cuBLAS have no class for it."""
    text = str(error)
    return isinstance(error, torch.OutOfMemoryError) or "out of memory" in text or "ALLOC_FAILED" in text


def out_of_memory(error: RuntimeError) -> str:
    """What it says, if that is the matter; any other error is raised."""
    if is_out_of_memory(error):
        return str(error).partition("\n")[0]
    raise error


def halve(plan: StepPlan) -> tuple[StepPlan, StepPlan] | None:
    """Half of the rows each, or of the tokens of a single row; None: it is one token of one row.

    Rows start, stop and get pages by the whole plan: the halves only compute.
    """
    bare = replace(plan, stopped=(), page_copies=(), started=(), table_updates=())
    count, tokens = len(plan.rows), plan.num_tokens
    if count > 1:
        middle = count // 2
        return _entries(bare, slice(middle)), _entries(bare, slice(middle, count))
    if tokens[0] < 2:
        return None
    first = tokens // 2
    # The first half ends inside the row's known tokens, so it draws nothing.
    return replace(bare, num_tokens=first, draws=plan.draws & False), replace(bare, num_tokens=tokens - first)


def _entries(plan: StepPlan, which: slice) -> StepPlan:
    names = ("rows", "sequences", "num_tokens", "num_drafts", "draws")
    return replace(plan, **{name: getattr(plan, name)[which] for name in names})


def join(plan: StepPlan, halves: tuple[StepPlan, StepPlan], results: tuple[StepResult, StepResult]) -> StepResult:
    """The result of the plan whose halves these are."""
    first, second = results
    if len(plan.rows) == 1:
        scores = _joined_scores(first, second)
        return replace(second, prompt_logprobs={0: scores} if scores else {})
    shift = len(halves[0].rows)
    return StepResult(
        plan.step_id,
        np.concatenate([first.num_new, second.num_new]),
        np.concatenate([first.token_ids, second.token_ids]),
        _by_entry(first.logprobs, second.logprobs, shift),
        _by_entry(first.prompt_logprobs, second.prompt_logprobs, shift),
        first.broken | {shift + entry for entry in second.broken},
        _by_entry(first.pooled, second.pooled, shift),
    )


def _joined_scores(first: StepResult, second: StepResult) -> tuple[tuple[int, TokenLogprob], ...]:
    return (*first.prompt_logprobs.get(0, ()), *second.prompt_logprobs.get(0, ()))


def _by_entry(first: dict[int, Any], second: dict[int, Any], shift: int) -> dict[int, Any]:
    return first | {shift + entry: value for entry, value in second.items()}
