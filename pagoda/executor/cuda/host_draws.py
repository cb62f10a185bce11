"""Rows that ask for more than the kernels know: drawn and scored on the host, which then waits for the logits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from pagoda.core.plan import IntArray, RowPayload, RowStart
from pagoda.core.result import TokenLogprob
from pagoda.decoding import SamplingState, prompt_logprobs
from pagoda.executor.asked import Asked
from pagoda.executor.cuda.counts import HostCounts
from pagoda.executor.cuda.wishes import DrawKind, Wishes
from pagoda.executor.logprobs import token_logprob
from pagoda.executor.rows import Rows
from pagoda.kernels.sampling import Draws, SampledTokens, SamplingBatch

PromptScores = dict[int, tuple[tuple[int, TokenLogprob], ...]]


class HostDraws:
    """The sampling state of all rows, as the host keeps it."""

    def __init__(self, state: SamplingState, sample: Callable[[np.ndarray, SamplingBatch], SampledTokens]) -> None:
        self._state = state
        self._sample = sample
        self._prompts: dict[int, IntArray] = {}  # of rows that want their prompts scored

    def add(self, start: RowStart, payload: RowPayload, wishes: Wishes) -> None:
        count = payload.num_prompt_tokens
        prompt, output = payload.token_ids[:count], payload.token_ids[count:]
        if payload.sampling.prompt_logprobs is not None:
            self._prompts[start.row] = prompt
        ids = (prompt.tolist(), output.tolist()) if wishes.kind is DrawKind.HOST else ()
        self._state.add(start.row, wishes.left_to_host, payload.seed, start.sample_index, *ids)

    def draws(self, drawers: Rows, positions: IntArray) -> Draws | None:
        """What the device draws with; None where every row is greedy."""
        return self._state.batch(drawers, positions).draws

    def remove(self, row: int) -> None:
        self._state.remove(row)
        self._prompts.pop(row, None)

    def draw(self, logits: torch.Tensor, drawers: Rows, positions: IntArray) -> SampledTokens:
        """One token for each row; waits for the logits, and so for every step before this one."""
        sampled = self._sample(logits.float().cpu().numpy(), self._state.batch(drawers, positions))
        self._state.observe(drawers, sampled.token_ids)
        return sampled

    def score_prompts(
        self, counts: HostCounts, asked: Asked, num_tokens: IntArray, logits_of: Callable[[IntArray], np.ndarray]
    ) -> PromptScores:
        """How likely the model found each prompt token that follows a token of this step, for rows that ask."""
        if not self._prompts:
            return {}
        scores = {}
        ends = np.cumsum(num_tokens)
        for entry, row in enumerate(asked.rows.tolist()):
            prompt = self._prompts.get(row)
            if prompt is None:
                continue
            first, count = int(counts.num_computed[row]), int(num_tokens[entry])
            count = min(count, len(prompt) - 1 - first)
            if count <= 0:
                continue
            tokens = (np.arange(count) + ends[entry] - num_tokens[entry]).astype(np.int32)
            next_ids = prompt[first + 1 : first + 1 + count]
            found = prompt_logprobs(logits_of(tokens), next_ids, int(counts.num_prompt_logprobs[row]))
            scores[entry] = tuple(
                (first + 1 + index, token_logprob(found, index, int(next_ids[index]))) for index in range(count)
            )
        return scores
