"""What one step gave: the executor's report, upwards."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pagoda.core.plan import IntArray


class TokenLogprob(NamedTuple):
    """The log-probability of one token, its rank (1 is the likeliest), and the likeliest ones beside it."""

    token_id: int
    logprob: float
    rank: int
    top_ids: tuple[int, ...]
    top_logprobs: tuple[float, ...]


@dataclass(frozen=True, eq=False, slots=True)
class StepResult:
    """Entry i of each array speaks of entry i of the plan with the same step_id.

    A row that drew has 1 to 1 + num_drafts new tokens: the accepted drafts and the token drawn after them.
    """

    step_id: int
    num_new: IntArray
    token_ids: IntArray
    """The new tokens of all rows, one row after the other."""
    logprobs: dict[int, tuple[TokenLogprob, ...]] = field(default_factory=dict)
    """By plan entry, for rows that asked: one for each new token."""
    prompt_logprobs: dict[int, tuple[tuple[int, TokenLogprob], ...]] = field(default_factory=dict)
    """By plan entry: (position, what the model gave the prompt's token there)."""
    broken: frozenset[int] = frozenset()
    """Plan entries whose logits were not numbers; their tokens mean nothing."""
    pooled: dict[int, npt.NDArray[np.float32]] = field(default_factory=dict)
    """By plan entry, for rows that want a vector; they have no new token."""
