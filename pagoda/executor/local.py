"""Runs plans in this process: the plainest executor, every result there when the step is submitted."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np

from pagoda.core.plan import IntArray, RowPayload, StepPlan
from pagoda.core.result import StepResult, TokenLogprob
from pagoda.decoding import SamplingState, prompt_logprobs
from pagoda.executor.asked import Asked
from pagoda.executor.base import WorkerOperators
from pagoda.executor.forward import Forward
from pagoda.executor.logprobs import logprobs_by_entry, token_logprob
from pagoda.executor.pages import PageStore
from pagoda.executor.pooling import Pooler
from pagoda.executor.rows import Rows, WorkerRows, in_order
from pagoda.kernels.base import Array, FloatArray, RaggedBatch, StoredWeight, Weight
from pagoda.kernels.sampling import SampledTokens

NOTHING: frozenset[int] = frozenset()


class LocalExecutor:
    """One worker: its rows, its pages and a forward pass over them."""

    lateness = 0
    num_halved_steps = 0

    def __init__(
        self,
        operators: WorkerOperators,
        forward: Forward,
        rows: WorkerRows,
        pages: PageStore,
        end_token_ids: Iterable[int],
    ) -> None:
        self._operators = operators
        self._forward = forward
        self._rows = rows
        self._pages = pages
        self._sampling = SamplingState(len(rows.num_tokens), end_token_ids)
        self._pooler = Pooler()
        self._asked: Asked | None = None  # by the last plan
        self._logits: FloatArray | None = None  # of the last step, for the next one to write over
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

    def use_idle_time(self) -> bool:
        return False

    def close(self) -> None:
        self._results.clear()

    def allocated_bytes(self) -> dict[str, int]:
        """By line of `MemoryPlan`: what was really taken."""
        workspace, logits = self._forward.allocated_bytes()
        return {
            "weights": self._operators.num_bytes(),
            "pages": self._pages.num_bytes,
            "workspace": workspace,
            "logits": logits,
            "rows": self._rows.num_bytes + self._sampling.num_bytes,
        }

    def stored(self, weight: Weight) -> StoredWeight:
        return self._operators.stored(weight)

    def _take_orders(self, plan: StepPlan, payloads: Sequence[RowPayload]) -> None:
        for row in plan.stopped:
            if row in self._occupied:  # a row may start and stop between two plans that reach us
                self._occupied.remove(row)
                self._sampling.remove(row)
                self._pooler.stop(row)
        if plan.page_copies:
            self._pages.copy(plan.page_copies, self._operators)
        for start, payload in in_order(plan.started, payloads):
            self._rows.start(start, payload)
            self._occupied.add(start.row)
            self._pooler.start(start.row, payload)
            prompt = payload.token_ids[: payload.num_prompt_tokens].tolist()
            output = payload.token_ids[payload.num_prompt_tokens :].tolist()
            self._sampling.add(start.row, payload.sampling, payload.seed, start.sample_index, prompt, output)
        for update in plan.table_updates:
            self._rows.update_table(update)

    def _run(self, plan: StepPlan) -> StepResult:
        if plan.is_empty:
            nothing = np.zeros(0, np.int32)
            return StepResult(plan.step_id, nothing, nothing)
        asked = self._asked
        if asked is None or not asked.is_of(plan):
            asked = self._asked = Asked.by(plan, self._pooler)
        batch = self._rows.batch(asked.rows, plan.num_tokens)
        scored = [] if asked.decodes else self._prompts_to_score(asked.rows, batch)
        wanted = asked.wanted
        if scored:
            wanted = np.concatenate([wanted, *(tokens for _, tokens in scored)])
        num_drawing, num_logits = len(asked.drawing), len(wanted)
        if self._pooler:  # the hidden states of all tokens are asked for
            every = np.arange(len(batch.token_ids), dtype=np.int32)
            wanted = np.concatenate([wanted, np.setdiff1d(every, wanted)])
        logits = self._logits = self._forward.logits(batch, wanted, self._logits, num_logits)
        scores = self._score_prompts(asked.rows, batch, scored, logits[num_drawing:]) if scored else {}
        self._rows.computed(asked.rows, batch.context_lens)
        pooled = {}
        if self._pooler:
            places = np.zeros(len(batch.token_ids), np.int32)
            places[wanted] = np.arange(len(wanted), dtype=np.int32)
            pooled = self._pooler.take(asked.rows, plan.draws, batch.row_starts, self._forward.hidden()[places])
        if not num_drawing:
            nothing = np.zeros(0, np.int32)
            return StepResult(plan.step_id, asked.num_new, nothing, prompt_logprobs=scores, pooled=pooled)
        sampled = self._draw(asked.drawers, logits[:num_drawing] if scored else logits)
        logprobs = logprobs_by_entry(sampled, asked.drawing)
        broken = frozenset(asked.drawing[sampled.is_broken].tolist()) if sampled.is_broken is not None else NOTHING
        return StepResult(plan.step_id, asked.num_new, sampled.token_ids, logprobs, scores, broken, pooled)

    def _draw(self, drawers: Rows, logits: Array) -> SampledTokens:
        """One token for each of the rows."""
        sampled = self._operators.sample(logits, self._sampling.batch(drawers, self._rows.num_tokens[drawers]))
        self._rows.append(drawers, sampled.token_ids)
        self._sampling.observe(drawers, sampled.token_ids)
        return sampled

    def _prompts_to_score(self, rows: Rows, batch: RaggedBatch) -> list[tuple[int, IntArray]]:
        """Plan entries that want prompt scores, each with the tokens of the step that a prompt token follows."""
        (wanting,) = (self._rows.num_prompt_logprobs[rows] >= 0).nonzero()
        scored = []
        for entry in wanting.tolist():
            tokens = np.arange(batch.row_starts[entry], batch.row_starts[entry + 1], dtype=np.int32)
            tokens = tokens[batch.positions[tokens] + 1 < self._rows.num_prompt_tokens[rows[entry]]]
            if len(tokens):
                scored.append((entry, tokens))
        return scored

    def _score_prompts(
        self, rows: Rows, batch: RaggedBatch, scored: list[tuple[int, IntArray]], logits: FloatArray
    ) -> dict[int, tuple[tuple[int, TokenLogprob], ...]]:
        """How likely the model found each prompt token that follows a token of this step."""
        scores = {}
        first = 0
        for entry, tokens in scored:
            row = int(rows[entry])
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
