"""An executor on paper: its pages hold fingerprints instead of keys and values, and every read is checked.

A cell's fingerprint stands for a token and everything before it, as real keys and values do. A page that was shared,
copied, freed or reused wrongly therefore shows as a foreign fingerprint the first time a row looks at it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pagoda.core.cache import CacheGroup
from pagoda.core.plan import RowStart, StepPlan

EMPTY = -1
WRONG_GUESS = -2
VOCABULARY = 3  # few tokens, so that prefixes are often shared


def extend_prints(prints: list[int], tokens: Sequence[int]) -> None:
    """Append the fingerprint of each token after all that came before it."""
    last = prints[-1] if prints else 7
    for token in tokens:
        last = (last * 1_000_003 + token + 1) % 2_305_843_009_213_693_951
        prints.append(last)


@dataclass
class PaperRow:
    sequence: int
    tokens: list[int]
    num_computed: int
    tables: list[list[int]]
    prints: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        extend_prints(self.prints, self.tokens)

    def draw(self, tokens: list[int]) -> None:
        self.tokens += tokens
        extend_prints(self.prints, tokens)


@dataclass
class Work:
    """What one row computes in one step."""

    row: PaperRow
    first: int
    prints: list[int]


class PaperDevice:
    """Carries out plans strictly in their order, whenever that may be, knowing only what the plans say."""

    def __init__(self, groups: Sequence[CacheGroup], num_pages: Sequence[int], page_size: int, seed: int) -> None:
        self.groups = groups
        self.page_size = page_size
        self.random = random.Random(seed)
        self.cells: list[npt.NDArray[np.int64]] = [np.full((n, page_size), EMPTY, np.int64) for n in num_pages]
        self.rows: dict[int, PaperRow] = {}
        self.num_reads = 0

    def execute(self, plan: StepPlan, texts: dict[int, list[int]]) -> list[list[int]]:
        """The new tokens by plan entry. `texts` has the known tokens of each sequence that starts."""
        for row in plan.stopped:
            self.rows.pop(row, None)
        for copy in plan.page_copies:
            self.cells[copy.group][copy.target] = self.cells[copy.group][copy.source]
        for start in plan.started:
            self._start(start, texts[start.sequence])
        for update in plan.table_updates:
            self._update_table(update.row, update.group, update.start, update.pages)
        drawn, works = [], []
        for entry in range(len(plan.rows)):
            tokens, work = self._compute(plan, entry)
            drawn.append(tokens)
            works.append(work)
        for work in works:
            self._write(work)
        for work in works:
            self._read(work)
        return drawn

    def _start(self, start: RowStart, tokens: list[int]) -> None:
        assert start.row not in self.rows, "a row was given away twice"
        tables = [list(pages) for pages in start.page_tables]
        row = PaperRow(start.sequence, list(tokens), start.num_computed, tables)
        self.rows[start.row] = row
        for group, pages in enumerate(tables):
            for entry in range(start.num_computed // self.page_size, len(pages)):
                fresh_from = max(0, start.num_computed - entry * self.page_size)
                self.cells[group][pages[entry], fresh_from:] = EMPTY

    def _update_table(self, row: int, group: int, start: int, pages: tuple[int, ...]) -> None:
        table = self.rows[row].tables[group]
        assert start <= len(table), "a gap in a page table"
        for page in pages[len(table) - start :]:
            self.cells[group][page] = EMPTY  # a page added at the end is new: whatever is in it belongs to nobody
        table[start : start + len(pages)] = pages

    def _compute(self, plan: StepPlan, entry: int) -> tuple[list[int], Work]:
        row = self.rows[int(plan.rows[entry])]
        assert row.sequence == int(plan.sequences[entry]), "the plan speaks of another tenant"
        first, num_drafts = row.num_computed, int(plan.num_drafts[entry])
        num_known = int(plan.num_tokens[entry]) - num_drafts
        assert num_known > 0 and first + num_known <= len(row.tokens), "asked to compute tokens that nobody knows"
        prints = row.prints[first : first + num_known]
        row.num_computed += num_known
        if not plan.draws[entry]:
            assert not num_drafts
            return [], Work(row, first, prints)
        assert row.num_computed == len(row.tokens), "draws before all known tokens are computed"
        num_accepted = self.random.randint(0, num_drafts)
        tokens = [self.random.randrange(VOCABULARY) for _ in range(1 + num_accepted)]
        row.draw(tokens)
        accepted = row.prints[row.num_computed : row.num_computed + num_accepted]
        row.num_computed += num_accepted
        return tokens, Work(row, first, prints + accepted + [WRONG_GUESS] * (num_drafts - num_accepted))

    def _write(self, work: Work) -> None:
        for group, table in enumerate(work.row.tables):
            for position, print_ in enumerate(work.prints, start=work.first):
                page = table[position // self.page_size]
                assert page >= 0, "a write behind the window"
                self.cells[group][page, position % self.page_size] = print_

    def _read(self, work: Work) -> None:
        """Every position that the step's tokens may look at holds this row's own text."""
        stop = work.first + len(work.prints)
        expected = work.row.prints[: work.first] + work.prints
        for group, table in enumerate(work.row.tables):
            window = self.groups[group].window
            start = max(0, work.first - window + 1) if window else 0
            first_page, last_page = start // self.page_size, -(-stop // self.page_size)
            pages = table[first_page:last_page]
            assert min(pages) >= 0, "a read behind what is kept"
            seen = self.cells[group][pages].reshape(-1)
            offset = first_page * self.page_size
            found = seen[start - offset : stop - offset].tolist()
            assert found == expected[start:stop], f"sequence {work.row.sequence} reads foreign tokens in group {group}"
            self.num_reads += stop - start
