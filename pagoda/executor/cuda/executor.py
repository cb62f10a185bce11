"""Runs plans on one CUDA device: a step is begun and left to itself, and its tokens come back one step later."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from pagoda.core.plan import IntArray, RowPayload, StepPlan
from pagoda.core.result import StepResult, TokenLogprob
from pagoda.decoding import SamplingState
from pagoda.executor.asked import Asked
from pagoda.executor.cuda.counts import HostCounts
from pagoda.executor.cuda.graphs import DecodeGraphs, Variant
from pagoda.executor.cuda.halves import Halving, out_of_memory
from pagoda.executor.cuda.inputs import num_decoding
from pagoda.executor.cuda.parts import DeviceMemory, DeviceParts
from pagoda.executor.cuda.prompt_graphs import PromptGraphs
from pagoda.executor.cuda.prompt_scores import Scoring
from pagoda.executor.cuda.wishes import DrawKind, Wishes
from pagoda.executor.logprobs import logprobs_by_entry
from pagoda.executor.pooling import Pooler
from pagoda.executor.rows import Rows, in_order
from pagoda.kernels.base import FloatArray, StoredWeight, Weight
from pagoda.kernels.cuda.shared_attention import SharedRows
from pagoda.kernels.sampling import SampledTokens

NO_TOKENS: IntArray = np.zeros(0, np.int32)
NOTHING: frozenset[int] = frozenset()

Logprobs = dict[int, tuple[TokenLogprob, ...]]
"""Of drawn tokens, by entry of the plan."""


@dataclass(frozen=True, eq=False, slots=True)
class UnderWay:
    """A step whose result was not collected: either its tokens are on their way, or the result is here already."""

    plan: StepPlan
    asked: Asked | None = None
    turn: int = 0
    num_outcomes: int = 0
    scored: Scored | None = None
    prompts: Scoring | None = None
    result: StepResult | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Scored:
    """Log-probabilities that are on their way."""

    turn: int
    num_scores: IntArray
    """Of the rows that draw, as they wished when the step began: a row may have another tenant by now."""


class CudaExecutor:
    """Rows, pages, a recorded pass, and graphs of it: whole for steps that only decode, in pieces for others."""

    def __init__(
        self,
        parts: DeviceParts,
        max_num_seqs: int,
        end_token_ids: Iterable[int],
        device: torch.device,
        memory: DeviceMemory,
    ) -> None:
        self._parts = parts
        self._program = parts.program
        self._rows = parts.of_rows.rows
        self._inputs = parts.of_rows.inputs
        self._pages = parts.pages
        self._sharing = parts.sharing
        self._draws = parts.draws
        self._prompt_scores = parts.prompt_scores
        self._memory = memory
        self._end_token_ids = tuple(end_token_ids)
        self._counts = HostCounts.of(max_num_seqs)
        self._sampling = SamplingState(max_num_seqs, self._end_token_ids)
        self._returns = parts.returns
        self._graphs = DecodeGraphs(self._launch_decoding, max_num_seqs, device)
        self._prompt_graphs = PromptGraphs(self._program.pieces, self._program.max_tokens, device)
        self._pooler = Pooler()
        self._asked: Asked | None = None  # by the last plan
        self._kind = DrawKind.GREEDY
        self._sent: Asked | None = None  # whose rows lie in the inputs as a decoding batch
        self._variant = Variant(0)  # of that batch
        self._under_way: deque[UnderWay] = deque()
        self._has_answered = False
        self._halving = Halving(self._run_to_end)

    @property
    def num_halved_steps(self) -> int:
        return self._halving.num_steps

    @property
    def lateness(self) -> int:
        """The very first token is not kept back while the step after it has its kernels built."""
        return 1 if self._has_answered else 0

    @property
    def num_in_flight(self) -> int:
        return len(self._under_way)

    def warm_up(self) -> None:
        """Capture the graphs of all sizes, the largest first."""
        for size in reversed(self._graphs.sizes):
            self._capture(Variant(size))

    def use_idle_time(self) -> bool:
        """Capture one more graph, once it has answered; whether there is more to do."""
        variant = self._graphs.next_wanted()
        if variant is None:
            return self._prompt_graphs.capture_one()
        self._capture(variant)
        return True

    def submit(self, plan: StepPlan, payloads: Sequence[RowPayload]) -> None:
        assert len(self._under_way) <= 1, "collect the results of earlier steps first"
        self._take_orders(plan, payloads)
        self._under_way.append(self._begin(plan))

    def collect(self) -> StepResult:
        result = self._result_of(self._under_way.popleft())
        self._has_answered |= len(result.token_ids) > 0
        return result

    def _result_of(self, step: UnderWay) -> StepResult:
        return step.result if step.result is not None else self._wait_for(step)

    def stored(self, weight: Weight) -> StoredWeight:
        return self._program.stored(weight)

    def _wait_for(self, step: UnderWay) -> StepResult:
        assert step.asked is not None
        outcomes = self._returns.wait(step.turn, 2 * step.num_outcomes)
        count = len(step.asked.drawing)
        token_ids, is_broken = outcomes[:count], outcomes[step.num_outcomes : step.num_outcomes + count]
        broken = frozenset(step.asked.drawing[is_broken > 0].tolist()) if is_broken.any() else NOTHING
        logprobs: Logprobs = {}
        if step.scored is not None:
            found = self._draws.scores(step.scored.turn, step.scored.num_scores)
            logprobs = logprobs_by_entry(SampledTokens(token_ids, found), step.asked.drawing)
        prompts = {} if step.prompts is None else self._prompt_scores.found(step.prompts)
        return StepResult(step.plan.step_id, step.asked.num_new, token_ids, logprobs, prompts, broken)

    def allocated_bytes(self) -> dict[str, int]:
        """By line of `MemoryPlan`. The libraries' is what the device has lost since the start beyond the others."""
        lines = self._parts.lines()
        return lines | {"libraries": max(0, self._memory.taken_bytes - sum(lines.values()))}

    @property
    def num_host_bytes(self) -> int:
        """Pinned in main memory."""
        return self._parts.num_host_bytes

    def close(self) -> None:
        self._under_way.clear()
        self._graphs.clear()
        self._prompt_graphs.clear()
        gc.unfreeze()  # what lies on the device is given back with the last object that knows it

    def _take_orders(self, plan: StepPlan, payloads: Sequence[RowPayload]) -> None:
        counts = self._counts
        for row in plan.stopped:
            if row in counts.occupied:  # a row may start and stop between two plans that reach us
                counts.occupied.remove(row)
                self._sampling.remove(row)
                self._prompt_scores.stop(row)
                self._pooler.stop(row)
        if plan.page_copies:
            self._pages.copy(plan.page_copies)
        for start, payload in in_order(plan.started, payloads):
            self._rows.start(start, payload)
            self._pooler.start(start.row, payload)
            row = start.row
            counts.occupied.add(row)
            counts.num_tokens[row] = len(payload.token_ids)
            counts.num_computed[row] = start.num_computed
            if self._sharing is not None:
                self._sharing.start(start)
            wishes = Wishes.of(payload, self._end_token_ids, self._draws.vocab_size)
            counts.kinds[row], counts.num_scores[row] = wishes.kind, wishes.num_scores
            self._sampling.add(row, wishes.drawn_with, payload.seed, start.sample_index)
            self._draws.start(row, wishes)
            self._prompt_scores.start(row, payload)
        for update in plan.table_updates:
            self._rows.update_table(update)
            if self._sharing is not None:
                self._sharing.update(update)
        self._rows.flush()
        self._draws.flush()

    def _begin(self, plan: StepPlan) -> UnderWay:
        if plan.is_empty:
            return UnderWay(plan, result=StepResult(plan.step_id, NO_TOKENS, NO_TOKENS))
        asked = self._asked
        if asked is None or not asked.is_of(plan):
            asked = self._asked = Asked.by(plan, self._pooler)
            self._kind = self._kind_of(asked)
        try:
            return self._run(plan, asked)
        except RuntimeError as error:
            reason = out_of_memory(error)
        # Out of the handler, the failed step's memory is free. Results under way are fetched before theirs.
        for index, step in enumerate(self._under_way):
            self._under_way[index] = replace(step, result=self._result_of(step))
        result = self._halving.run(plan, reason)
        self._asked = self._sent = None
        return UnderWay(plan, result=result)

    def _run_to_end(self, plan: StepPlan) -> StepResult:
        """A part of a step, whose result is waited for."""
        asked = Asked.by(plan, self._pooler)
        self._kind = self._kind_of(asked)
        return self._result_of(self._run(plan, asked))

    def _kind_of(self, asked: Asked) -> DrawKind:
        return DrawKind(self._counts.kinds[asked.drawers].max(initial=0))

    def _run(self, plan: StepPlan, asked: Asked) -> UnderWay:
        """What needs memory comes before what changes a row: after an error the step can be run again."""
        return self._decode(plan, asked) if asked.decodes else self._mix(plan, asked)

    # -- steps of one token a row ----------------------------------------------------------------------------------

    def _decode(self, plan: StepPlan, asked: Asked) -> UnderWay:
        if self._sent is not asked or self._graphs.is_due(self._variant):
            self._send_decoding(plan, asked)
        size = self._variant.size
        self._graphs.run(self._variant)
        self._counts.num_tokens[asked.rows] += 1
        self._counts.num_computed[asked.rows] += 1
        return UnderWay(plan, asked, self._returns.fetch(self._inputs.outcomes(size)), size, self._scored(asked))

    def _send_decoding(self, plan: StepPlan, asked: Asked) -> None:
        groups = self._groups_of(asked.rows)
        variant = Variant(self._graphs.size_for(len(asked.rows)), bool(groups), self._kind)
        if self._graphs.is_due(variant):
            self._capture(variant)
        self._send_draws(asked)
        if self._sharing is not None and groups:
            self._sharing.send(groups)
        self._inputs.send_decoding(plan.rows, variant.size)
        self._sent, self._variant = asked, variant

    def _capture(self, variant: Variant) -> None:
        """On padding: the step that is captured must change nothing."""
        if self._sharing is not None and variant.is_shared:
            self._sharing.send([])
        self._inputs.send_decoding(NO_TOKENS, variant.size)
        self._graphs.capture(variant)
        self._sent = None

    def _launch_decoding(self, variant: Variant) -> None:
        shared = self._sharing.shared_rows(variant.size) if self._sharing is not None and variant.is_shared else None
        batch = self._inputs.decoding_batch(variant.size, shared)
        logits = self._program.decode(batch, self._inputs.counting[: variant.size])
        self._draws.choose(self._inputs.outcomes(variant.size), logits, variant.kind, self._inputs.drawing_of(batch))
        self._inputs.advance_decoding(batch)

    def _send_draws(self, asked: Asked) -> None:
        if self._kind is not DrawKind.GREEDY:
            batch = self._sampling.batch(asked.drawers, self._counts.num_tokens[asked.drawers])
            self._draws.send(batch.draws)

    def _scored(self, asked: Asked) -> Scored | None:
        if self._kind < DrawKind.SCORED:
            return None
        num_scores = self._counts.num_scores[asked.drawers]
        return Scored(self._draws.fetch_scores(len(num_scores)), num_scores) if num_scores.any() else None

    # -- any other step --------------------------------------------------------------------------------------------

    def _mix(self, plan: StepPlan, asked: Asked) -> UnderWay:
        self._sent = None
        counts, rows = self._counts, asked.rows
        num_tokens = plan.num_tokens
        size = self._prompt_graphs.size_for(int(num_tokens.sum()))
        positions = counts.num_tokens[asked.drawers]
        self._inputs.send(plan.rows, num_tokens, asked.num_new > 0, asked.wanted, positions, size)
        batch = self._inputs.batch(num_tokens, size, self._share(rows[: num_decoding(num_tokens)]))
        self._program.prepare(batch)
        self._prompt_graphs.run(batch, self._inputs.with_padding(batch, size))
        num_drawing = len(asked.drawing)
        logits_of = partial(self._program.logits, batch)
        prompts = self._prompt_scores.score(asked, counts.num_computed, num_tokens, logits_of)
        hidden = self._program.hidden(batch) if self._pooler else None
        if num_drawing:
            self._send_draws(asked)
            logits, drawing = logits_of(self._inputs.logit_tokens(num_drawing)), self._inputs.drawing(num_drawing)
            self._draws.choose(self._inputs.outcomes(num_drawing), logits, self._kind, drawing)
        pooled = self._pool(plan, asked, hidden) if hidden is not None else {}
        self._inputs.advance(batch)
        counts.num_computed[rows] += num_tokens
        counts.num_tokens[asked.drawers] += 1
        turn = self._returns.fetch(self._inputs.outcomes(num_drawing))
        step = UnderWay(plan, asked, turn, num_drawing, self._scored(asked), prompts)
        self._prompt_graphs.capture_due()
        if pooled:
            return UnderWay(plan, result=replace(self._wait_for(step), pooled=pooled))
        return step

    def _groups_of(self, decoding: Rows) -> list[tuple[Rows, int]]:
        return [] if self._sharing is None else self._sharing.find(decoding, self._counts.num_computed)

    def _share(self, decoding: Rows) -> SharedRows | None:
        groups = self._groups_of(decoding)
        if self._sharing is None or not groups:
            return None
        self._sharing.send(groups)
        return self._sharing.shared_rows(len(decoding))

    def _pool(self, plan: StepPlan, asked: Asked, hidden: FloatArray) -> dict[int, FloatArray]:
        starts = np.concatenate([[0], np.cumsum(plan.num_tokens)]).astype(np.int32)
        return self._pooler.take(asked.rows, plan.draws, starts, hidden)
