"""An executor on the fake model: real rows, page tables and page contents, results that come late, drafts that fail."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pagoda.core.cache import CacheGroup
from pagoda.core.plan import RowPayload, StepPlan
from pagoda.core.result import StepResult, TokenLogprob
from tests.fakes.model import BEFORE_THE_FIRST, FakeModel

EMPTY = 0


@dataclass
class FakeRow:
    sequence: int
    sample_index: int
    payload: RowPayload
    tokens: list[int]
    num_computed: int
    tables: list[list[int]]
    step_first: int = 0
    """Where its tokens of the last step begin."""


class FakeExecutor:
    """Steps are carried out when their results are collected, from nothing but the plans and payloads themselves."""

    def __init__(
        self,
        model: FakeModel,
        groups: Sequence[CacheGroup],
        num_pages: Sequence[int],
        page_size: int,
        lateness: int = 0,
    ) -> None:
        self.lateness = lateness
        self.before_submit: Callable[[StepPlan], None] = lambda plan: None
        self.plans: list[StepPlan] = []
        self.rows: dict[int, FakeRow] = {}
        self.num_drafts_accepted = 0
        self.num_drafts_refused = 0
        self._model = model
        self._groups = groups
        self._page_size = page_size
        self._cells: list[npt.NDArray[np.int64]] = [np.full((n, page_size), EMPTY, np.int64) for n in num_pages]
        self._waiting: deque[tuple[StepPlan, tuple[RowPayload, ...]]] = deque()

    num_halved_steps = 0

    def use_idle_time(self) -> bool:
        return False

    def allocated_bytes(self) -> dict[str, int]:
        return {}

    @property
    def num_in_flight(self) -> int:
        return len(self._waiting)

    def submit(self, plan: StepPlan, payloads: Sequence[RowPayload]) -> None:
        self.before_submit(plan)
        self.plans.append(plan)
        self._waiting.append((plan, tuple(payloads)))

    def collect(self) -> StepResult:
        plan, payloads = self._waiting.popleft()
        self._take_orders(plan, payloads)
        new = [self._compute(plan, entry) for entry in range(len(plan.rows))]
        return StepResult(
            step_id=plan.step_id,
            num_new=np.array([len(tokens) for tokens in new], np.int32),
            token_ids=np.array([token for tokens in new for token in tokens], np.int32),
            logprobs=self._logprobs(plan, new),
            prompt_logprobs=self._scores(plan),
        )

    def close(self) -> None:
        self._waiting.clear()

    def _take_orders(self, plan: StepPlan, payloads: tuple[RowPayload, ...]) -> None:
        for row in plan.stopped:
            self.rows.pop(row, None)
        for copy in plan.page_copies:
            self._cells[copy.group][copy.target] = self._cells[copy.group][copy.source]
        for start, payload in zip(plan.started, payloads, strict=True):
            assert start.row not in self.rows, "a row was given away twice"
            assert start.sequence == payload.sequence
            tables = [list(pages) for pages in start.page_tables]
            tokens = payload.token_ids.tolist()
            self.rows[start.row] = FakeRow(
                start.sequence, start.sample_index, payload, tokens, start.num_computed, tables
            )
        for update in plan.table_updates:
            table = self.rows[update.row].tables[update.group]
            assert update.start <= len(table), "a gap in a page table"
            table[update.start : update.start + len(update.pages)] = update.pages

    def _compute(self, plan: StepPlan, entry: int) -> list[int]:
        """Write the row's next tokens into its pages, and draw if the plan says so; the new tokens."""
        row = self.rows[int(plan.rows[entry])]
        assert row.sequence == int(plan.sequences[entry]), "the plan speaks of another tenant"
        row.step_first = row.num_computed
        num_drafts = int(plan.num_drafts[entry])
        for _ in range(int(plan.num_tokens[entry]) - num_drafts):
            assert row.num_computed < len(row.tokens), "asked to compute a token that nobody knows"
            self._write(row, row.num_computed, row.tokens[row.num_computed])
            row.num_computed += 1
        self._check_context(row)
        return self._draw(row, num_drafts) if plan.draws[entry] else []

    def _draw(self, row: FakeRow, num_drafts: int) -> list[int]:
        """Verify the drafts as one forward pass does: all are written first, and those after a wrong one stay there."""
        assert row.num_computed == len(row.tokens), "draws before all known tokens are computed"
        first = row.num_computed
        drafts: list[int] = []
        while len(drafts) < num_drafts:
            last = first + len(drafts) - 1
            state = self._read(row, 0, last)
            drafts.append(self._model.guess(state, self._next(row, last)))
            self._write(row, last + 1, drafts[-1])
        new: list[int] = []
        while True:
            new.append(self._next(row, first + len(new) - 1))
            if len(new) > num_drafts or drafts[len(new) - 1] != new[-1]:
                break
        self.num_drafts_accepted += len(new) - 1
        self.num_drafts_refused += num_drafts - (len(new) - 1)
        row.tokens += new
        row.num_computed += len(new) - 1
        return new

    def _next(self, row: FakeRow, last: int) -> int:
        """The token after position `last`, from what the pages hold there."""
        states = {self._read(row, group, last) for group in range(len(self._groups))}
        assert len(states) == 1, "the groups disagree about the text"
        num_output = last + 1 - row.payload.num_prompt_tokens
        banned = self._model.banned_at(row.payload.sampling, num_output)
        return self._model.draw(states.pop(), row.payload.seed, row.sample_index, banned)

    def _write(self, row: FakeRow, position: int, token_id: int) -> None:
        for group in range(len(self._groups)):
            before = self._read(row, group, position - 1) if position else BEFORE_THE_FIRST
            page, cell = self._place(row, group, position)
            self._cells[group][page, cell] = self._model.state_after(before, token_id)

    def _read(self, row: FakeRow, group: int, position: int) -> int:
        page, cell = self._place(row, group, position)
        return int(self._cells[group][page, cell])

    def _place(self, row: FakeRow, group: int, position: int) -> tuple[int, int]:
        page = row.tables[group][position // self._page_size]
        assert page >= 0, "a look behind the window"
        return page, position % self._page_size

    def _check_context(self, row: FakeRow) -> None:
        """Everything that the last computed token may look at is this row's own text."""
        expected = self._model.states(row.tokens[: row.num_computed])
        for group, spec in enumerate(self._groups):
            first = max(0, row.num_computed - spec.window) if spec.window else 0
            found = [self._read(row, group, position) for position in range(first, row.num_computed)]
            assert found == expected[first:], f"sequence {row.sequence} reads foreign tokens in group {group}"

    def _logprobs(self, plan: StepPlan, new: list[list[int]]) -> dict[int, tuple[TokenLogprob, ...]]:
        wanted = [self.rows[row].payload.sampling.logprobs is not None for row in plan.rows.tolist()]
        return {entry: tuple(map(fake_logprob, new[entry])) for entry, wants in enumerate(wanted) if wants}

    def _scores(self, plan: StepPlan) -> dict[int, tuple[tuple[int, TokenLogprob], ...]]:
        scores = {}
        for entry, number in enumerate(plan.rows.tolist()):
            row = self.rows[number]
            if row.payload.sampling.prompt_logprobs is None:
                continue
            # Rows whose prompts are scored read no cached page, so every prompt token passes here.
            stop = min(row.num_computed + 1, row.payload.num_prompt_tokens)
            places = range(row.step_first + 1, stop)
            scores[entry] = tuple((place, fake_logprob(row.tokens[place])) for place in places)
        return scores


def fake_logprob(token_id: int) -> TokenLogprob:
    return TokenLogprob(token_id, -1.0 - token_id, 1, (token_id,), (-1.0 - token_id,))
