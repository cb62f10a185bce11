"""What a program reads anew at every step. Arrays that it met at the last step, it takes as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pagoda.kernels.base import RaggedBatch
from pagoda.kernels.cpu import library as native
from pagoda.kernels.cpu.memory import address


class StepInputs:
    """The library's record of a step, and the arrays that it points to.

    A caller that decodes the same rows step after step may change the numbers of its batch in place and hand in the
    same objects again: then nothing is copied and no address is looked up.
    """

    def __init__(self, num_groups: int) -> None:
        self.record = native.Step()
        self._tables = (native.PageTables * max(1, num_groups))()
        self.record.tables = self._tables
        self.record.num_tables = self.num_groups = num_groups
        self._batch: RaggedBatch | None = None
        self._logit_rows: npt.NDArray[Any] | None = None
        self._kept: list[npt.NDArray[Any]] = []
        self._kept_rows: npt.NDArray[Any] | None = None

    def has(self, batch: RaggedBatch, logit_rows: npt.NDArray[Any]) -> bool:
        """Whether these are the objects of the last step."""
        return batch is self._batch and logit_rows is self._logit_rows

    def put(self, batch: RaggedBatch, logit_rows: npt.NDArray[Any]) -> native.Step:
        if batch is not self._batch:
            self._put_batch(batch)
        if logit_rows is not self._logit_rows:
            self._put_logit_rows(logit_rows)
        return self.record

    def _put_batch(self, batch: RaggedBatch) -> None:
        record = self.record
        given = [batch.token_ids, batch.positions, batch.row_starts, batch.context_lens, *batch.page_tables]
        kept = [np.ascontiguousarray(array, np.int32) for array in given]
        record.token_ids, record.positions, record.row_starts, record.context_lens = map(address, kept[:4])
        record.num_tokens, record.num_rows = len(batch.token_ids), len(batch.context_lens)
        # The library puts rows that share pages beside each other.
        orders = np.empty((self.num_groups, len(batch.context_lens)), np.int32)
        for table, pages, order in zip(self._tables, kept[4:], orders, strict=False):
            table.pages, table.stride, table.order = address(pages), pages.shape[1], address(order)
        self._kept = [*kept, orders]
        # A copy would not follow what the caller writes into its own array.
        is_shared = all(mine is theirs for mine, theirs in zip(kept, given, strict=True))
        self._batch = batch if is_shared else None

    def _put_logit_rows(self, logit_rows: npt.NDArray[Any]) -> None:
        self._kept_rows = np.ascontiguousarray(logit_rows, np.int32)
        self._logit_rows = logit_rows if self._kept_rows is logit_rows else None
        self.record.logit_rows, self.record.num_logit_rows = address(self._kept_rows), len(logit_rows)
