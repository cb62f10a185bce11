"""What a program reads anew at every step, at addresses that stay: a step copies its numbers in and lays out nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pagoda.kernels.base import IntArray, RaggedBatch
from pagoda.kernels.cpu import library as native


class IntSlot:
    """Room for one array of integers. It moves only when it must grow."""

    def __init__(self) -> None:
        self._memory: IntArray = np.zeros(0, np.int32)
        self.address = 0

    def put(self, values: npt.NDArray[Any]) -> bool:
        """Copy an array of any integer type and order in; whether the address is another one now."""
        count = values.size
        has_moved = count > len(self._memory)
        if has_moved:
            self._memory = np.zeros(max(64, 2 * count), np.int32)
            self.address = self._memory.ctypes.data
        if values.ndim == 1:
            self._memory[:count] = values
        else:
            self._memory[:count].reshape(values.shape)[:] = values
        return has_moved


class StepInputs:
    """The library's record of a step, and the memory that it points to."""

    def __init__(self, num_groups: int) -> None:
        self.record = native.Step()
        self._arrays = {
            name: IntSlot() for name in ("token_ids", "positions", "row_starts", "context_lens", "logit_rows")
        }
        self._tables = [IntSlot() for _ in range(num_groups)]
        self._table_records = (native.PageTables * max(1, num_groups))()
        self._widths = [-1] * num_groups
        self.record.tables = self._table_records

    @property
    def num_groups(self) -> int:
        return len(self._tables)

    def put(self, batch: RaggedBatch, logit_rows: npt.NDArray[Any]) -> native.Step:
        record = self.record
        self._put("token_ids", batch.token_ids)
        self._put("positions", batch.positions)
        self._put("row_starts", batch.row_starts)
        self._put("context_lens", batch.context_lens)
        self._put("logit_rows", logit_rows)
        record.num_tokens = len(batch.token_ids)
        record.num_rows = len(batch.context_lens)
        record.num_logit_rows = len(logit_rows)
        for group, table in enumerate(batch.page_tables):
            self._put_table(group, table)
        return record

    def _put(self, name: str, values: npt.NDArray[Any]) -> None:
        slot = self._arrays[name]
        if slot.put(values):
            setattr(self.record, name, slot.address)

    def _put_table(self, group: int, table: npt.NDArray[Any]) -> None:
        has_moved = self._tables[group].put(table)
        if has_moved or self._widths[group] != table.shape[1]:
            self._widths[group] = table.shape[1]
            record = self._table_records[group]
            record.pages, record.stride = self._tables[group].address, table.shape[1]
