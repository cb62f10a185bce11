"""Runs plans in this process: the plainest executor, every result there when the step is submitted."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np

from pagoda.core.plan import IntArray, RowPayload, StepPlan
from pagoda.core.result import StepResult, TokenLogprob
from pagoda.decoding import SamplingState, prompt_logprobs
from pagoda.executor.forward import EagerForward, Forward
from pagoda.executor.pages import PageStore
from pagoda.executor.rows import WorkerRows, in_order
from pagoda.kernels.base import Array, FloatArray, Operators, RaggedBatch
from pagoda.kernels.sampling import TokenLogprobs
from pagoda.models import Model


class LocalExecutor:
    """One worker: its rows, its pages, a model and an operator table."""

    lateness = 0

    def __init__(
        self,
        model: Model,
        operators: Operators,
        rows: WorkerRows,
        pages: PageStore,
        end_token_ids: Iterable[int],
        forward: Forward | None = None,
    ) -> None:
        self._operators = operators
        self._rows = rows
        self._pages = pages
        self._forward = forward or EagerForward(model, operators, pages.layers)
        self._sampling = SamplingState(len(rows.num_tokens), end_token_ids)
        self._occupied: set[int] = set()
        self._results: deque[StepResult] = deque()

    @property
    def num_in_flight(self) -> int:
        return len(self._results)

    def submit(self, plan: StepPlan, payloads: Sequence[RowPayload]) -> None:
        self._take_orders(plan, payloads)
        self._results.append(self._run(plan))

    def collect(self) -> StepResult:
        return self._results.popleft()

    def close(self) -> None:
        self._results.clear()

    def _take_orders(self, plan: StepPlan, payloads: Sequence[RowPayload]) -> None:
        for row in plan.stopped:
            if row in self._occupied:  # a row may start and stop between two plans that reach us
                self._occupied.remove(row)
                self._sampling.remove(row)
        self._pages.copy(plan.page_copies, self._operators)
        for start, payload in in_order(plan.started, payloads):
            self._rows.start(start, payload)
            self._occupied.add(start.row)
            prompt = payload.token_ids[: payload.num_prompt_tokens].tolist()
            output = payload.token_ids[payload.num_prompt_tokens :].tolist()
            self._sampling.add(start.row, payload.sampling, payload.seed, start.sample_index, prompt, output)
        for update in plan.table_updates:
            self._rows.update_table(update)

    def _run(self, plan: StepPlan) -> StepResult:
        if plan.is_empty:
            nothing = np.zeros(0, np.int32)
            return StepResult(plan.step_id, nothing, nothing)
        assert not plan.num_drafts.any(), "this executor makes no drafts"
        batch = self._rows.batch(plan.rows, plan.num_tokens)
        drawing = np.flatnonzero(plan.draws)
        scored = self._prompts_to_score(plan, batch)
        # Logits only for the tokens that draw or whose prompt is to be scored.
        wanted = np.concatenate([batch.row_starts[1:][drawing] - 1, *(rows for _, rows in scored)]).astype(np.int32)
        logits = self._forward.logits(batch, wanted)
        scores = self._score_prompts(plan, batch, scored, logits[len(drawing) :])
        self._rows.num_computed[plan.rows] += plan.num_tokens
        num_new = plan.draws.astype(np.int32)
        if not len(drawing):
            return StepResult(plan.step_id, num_new, np.zeros(0, np.int32), prompt_logprobs=scores)
        logits = logits[: len(drawing)]
        broken = frozenset(drawing[~np.isfinite(logits).all(axis=1)].tolist())
        token_ids, logprobs = self._draw(plan.rows, drawing, logits)
        return StepResult(plan.step_id, num_new, token_ids, logprobs, scores, broken)

    def _draw(
        self, rows: IntArray, drawing: Array, logits: Array
    ) -> tuple[IntArray, dict[int, tuple[TokenLogprob, ...]]]:
        """One token for each of the rows."""
        drawers = rows[drawing]
        sampled = self._operators.sample(logits, self._sampling.batch(drawers, self._rows.num_tokens[drawers]))
        self._rows.append(drawers, sampled.token_ids)
        for row, token_id in zip(drawers.tolist(), sampled.token_ids.tolist(), strict=True):
            self._sampling.observe(row, token_id)
        logprobs: dict[int, tuple[TokenLogprob, ...]] = {}
        if sampled.logprobs is not None:
            for index, entry in enumerate(sampled.logprobs.rows.tolist()):
                record = token_logprob(sampled.logprobs, index, int(sampled.token_ids[entry]))
                logprobs[int(drawing[entry])] = (record,)
        return sampled.token_ids, logprobs

    def _prompts_to_score(self, plan: StepPlan, batch: RaggedBatch) -> list[tuple[int, IntArray]]:
        """Plan entries that want prompt scores, each with the tokens of the step that a prompt token follows."""
        wanting = np.flatnonzero(self._rows.num_prompt_logprobs[plan.rows] >= 0).tolist()
        scored = []
        for entry in wanting:
            tokens = np.arange(batch.row_starts[entry], batch.row_starts[entry + 1], dtype=np.int32)
            tokens = tokens[batch.positions[tokens] + 1 < self._rows.num_prompt_tokens[plan.rows[entry]]]
            if len(tokens):
                scored.append((entry, tokens))
        return scored

    def _score_prompts(
        self, plan: StepPlan, batch: RaggedBatch, scored: list[tuple[int, IntArray]], logits: FloatArray
    ) -> dict[int, tuple[tuple[int, TokenLogprob], ...]]:
        """How likely the model found each prompt token that follows a token of this step."""
        scores = {}
        first = 0
        for entry, tokens in scored:
            row = int(plan.rows[entry])
            targets = batch.positions[tokens] + 1
            next_ids = self._rows.token_ids[row, targets]
            mine = logits[first : first + len(tokens)]
            first += len(tokens)
            found = prompt_logprobs(mine, next_ids, int(self._rows.num_prompt_logprobs[row]))
            scores[entry] = tuple(
                (int(position), token_logprob(found, index, int(next_ids[index])))
                for index, position in enumerate(targets)
            )
        return scores


def token_logprob(found: TokenLogprobs, index: int, token_id: int) -> TokenLogprob:
    count = int(found.num_top[index])
    return TokenLogprob(
        token_id,
        float(found.chosen[index]),
        int(found.ranks[index]),
        tuple(found.top_token_ids[index, :count].tolist()),
        tuple(found.top_values[index, :count].tolist()),
    )
