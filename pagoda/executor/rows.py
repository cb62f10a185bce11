"""What the worker keeps of every running sequence: written when it comes, changed only where a plan says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pagoda.core.plan import IntArray, RowPayload, RowStart, TableUpdate
from pagoda.kernels.base import RaggedBatch

NO_PAGE = -1
INT_BYTES = 4
NUM_COUNTS = 6  # of each row, beside its tokens and tables
Rows = npt.NDArray[Any]
"""Row numbers. NumPy gathers by its own index type (intp) several times faster than by any other."""


def worker_rows_bytes(num_rows: int, max_tokens: int, page_size: int, num_groups: int) -> int:
    """What `WorkerRows` of this size takes."""
    of_one_row = max_tokens + num_groups * -(-max_tokens // page_size) + NUM_COUNTS
    return INT_BYTES * (num_rows * of_one_row + 1)  # and one more count


class WorkerRows:
    """Arrays by row: token ids, counts, and one page table for each cache group."""

    def __init__(self, num_rows: int, max_tokens: int, page_size: int, num_groups: int) -> None:
        max_pages = -(-max_tokens // page_size)
        # Zeroed lazily by the system: a row costs memory only as far as it was written.
        self.token_ids: IntArray = np.zeros((num_rows, max_tokens), np.int32)
        self.num_tokens: IntArray = np.zeros(num_rows, np.int32)
        self.num_computed: IntArray = np.zeros(num_rows, np.int32)
        self.num_prompt_tokens: IntArray = np.zeros(num_rows, np.int32)
        self.num_prompt_logprobs: IntArray = np.full(num_rows, -1, np.int32)
        self.page_tables: list[IntArray] = [
            np.full((num_rows, max_pages), NO_PAGE, np.int32) for _ in range(num_groups)
        ]
        self._page_size = page_size
        self._ones: IntArray = np.ones(num_rows, np.int32)
        self._counts: IntArray = np.arange(num_rows + 1, dtype=np.int32)
        self._counts.setflags(write=False)
        self._decoding_rows: Rows | None = None
        self._decoding_tokens: IntArray | None = None
        self._decoding: RaggedBatch | None = None  # of those rows; None: their tables have changed
        self._decoding_pages = 0

    @property
    def num_bytes(self) -> int:
        counts = (self.num_tokens, self.num_computed, self.num_prompt_tokens, self.num_prompt_logprobs)
        arrays = (self.token_ids, *counts, *self.page_tables, self._ones, self._counts)
        return sum(array.nbytes for array in arrays)

    def start(self, start: RowStart, payload: RowPayload) -> None:
        row, count = start.row, len(payload.token_ids)
        self.token_ids[row, :count] = payload.token_ids
        self.num_tokens[row] = count
        self.num_computed[row] = start.num_computed
        self.num_prompt_tokens[row] = payload.num_prompt_tokens
        wanted = payload.sampling.prompt_logprobs
        self.num_prompt_logprobs[row] = -1 if wanted is None else wanted
        for table, pages in zip(self.page_tables, start.page_tables, strict=True):
            table[row, : len(pages)] = pages
        self._decoding = None

    def update_table(self, update: TableUpdate) -> None:
        self.page_tables[update.group][update.row, update.start : update.start + len(update.pages)] = update.pages
        self._decoding = None

    def append(self, rows: Rows, token_ids: IntArray) -> None:
        """One new token for each of the rows."""
        if len(rows) == 1:  # plain numbers are quicker than gathering one
            (row,) = rows.tolist()
            place = int(self.num_tokens[row])
            self.token_ids[row, place] = token_ids[0]
            self.num_tokens[row] = place + 1
            return
        places = self.num_tokens[rows]
        self.token_ids[rows, places] = token_ids
        self.num_tokens[rows] = places + 1

    def batch(self, rows: Rows, num_tokens: IntArray) -> RaggedBatch:
        """The next `num_tokens` tokens of each row, one row after the other.

        Asked with the same two arrays again, a batch that decodes is the same object with new numbers in it.
        """
        if rows is self._decoding_rows and num_tokens is self._decoding_tokens:
            return self._next_tokens(rows)
        if num_tokens.tobytes() == self._ones[: len(rows)].tobytes():
            self._decoding_rows, self._decoding_tokens, self._decoding = rows, num_tokens, None
            return self._next_tokens(rows)
        first = self.num_computed[rows]
        starts = np.zeros(len(rows) + 1, np.int32)
        np.cumsum(num_tokens, out=starts[1:])
        owner = np.repeat(np.arange(len(rows)), num_tokens)
        positions = np.arange(starts[-1], dtype=np.int32) - starts[owner] + first[owner]
        context_lens = first + num_tokens
        return RaggedBatch(
            token_ids=self.token_ids[rows[owner], positions],
            positions=positions,
            row_starts=starts,
            context_lens=context_lens,
            page_tables=self._tables(rows, self._num_pages(context_lens)),
        )

    def _next_tokens(self, rows: Rows) -> RaggedBatch:
        """One token of each row."""
        if len(rows) == 1 and self._decoding is not None and self._is_next_of_one(int(rows[0]), self._decoding):
            return self._decoding
        positions = self.num_computed[rows]
        context_lens = positions + 1
        token_ids = self.token_ids[rows, positions]
        num_pages = self._num_pages(context_lens)
        batch = self._decoding
        if batch is None or self._decoding_pages != num_pages:
            starts = self._counts[: len(rows) + 1]
            self._decoding = RaggedBatch(token_ids, positions, starts, context_lens, self._tables(rows, num_pages))
            self._decoding_pages = num_pages
            return self._decoding
        batch.token_ids[:] = token_ids
        batch.positions[:] = positions
        batch.context_lens[:] = context_lens
        return batch

    def _is_next_of_one(self, row: int, batch: RaggedBatch) -> bool:
        """Put the row's next token into its batch, unless that needs another page."""
        position = int(self.num_computed[row])
        if position >= self._decoding_pages * self._page_size:
            return False
        batch.token_ids[0] = self.token_ids[row, position]
        batch.positions[0] = position
        batch.context_lens[0] = position + 1
        return True

    def computed(self, rows: Rows, context_lens: IntArray) -> None:
        """So many tokens of each row have their keys and values now."""
        if len(rows) == 1:
            self.num_computed[int(rows[0])] = context_lens[0]
        else:
            self.num_computed[rows] = context_lens

    def _num_pages(self, context_lens: IntArray) -> int:
        return -(-max(context_lens.tolist(), default=0) // self._page_size)

    def _tables(self, rows: Rows, num_pages: int) -> tuple[IntArray, ...]:
        return tuple([table[rows, :num_pages] for table in self.page_tables])


def in_order(starts: Sequence[RowStart], payloads: Sequence[RowPayload]) -> list[tuple[RowStart, RowPayload]]:
    """Each start with its payload; they must be about the same sequences."""
    pairs = list(zip(starts, payloads, strict=True))
    for start, payload in pairs:
        assert start.sequence == payload.sequence, "a payload came for another sequence"
    return pairs
