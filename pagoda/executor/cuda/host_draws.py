"""Rows that ask for more than the kernels know: drawn on the host, which then waits for the logits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from pagoda.core.plan import IntArray, RowPayload, RowStart
from pagoda.decoding import SamplingState
from pagoda.executor.cuda.wishes import DrawKind, Wishes
from pagoda.executor.rows import Rows
from pagoda.kernels.sampling import Draws, SampledTokens, SamplingBatch


class HostDraws:
    """The sampling state of all rows, as the host keeps it."""

    def __init__(self, state: SamplingState, sample: Callable[[np.ndarray, SamplingBatch], SampledTokens]) -> None:
        self._state = state
        self._sample = sample

    def add(self, start: RowStart, payload: RowPayload, wishes: Wishes) -> None:
        count = payload.num_prompt_tokens
        prompt, output = payload.token_ids[:count], payload.token_ids[count:]
        ids = (prompt.tolist(), output.tolist()) if wishes.kind is DrawKind.HOST else ()
        self._state.add(start.row, wishes.left_to_host, payload.seed, start.sample_index, *ids)

    def draws(self, drawers: Rows, positions: IntArray) -> Draws | None:
        """What the device draws with; None where every row is greedy."""
        return self._state.batch(drawers, positions).draws

    def remove(self, row: int) -> None:
        self._state.remove(row)

    def draw(self, logits: torch.Tensor, drawers: Rows, positions: IntArray) -> SampledTokens:
        """One token for each row; waits for the logits, and so for every step before this one."""
        sampled = self._sample(logits.float().cpu().numpy(), self._state.batch(drawers, positions))
        self._state.observe(drawers, sampled.token_ids)
        return sampled
