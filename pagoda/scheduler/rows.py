"""The token counts of all running sequences, as arrays by row: a step of many rows is a few array operations."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pagoda.scheduler.sequence import NO_ROW, Sequence

Counts = npt.NDArray[np.int64]


class RowTable:
    """For each row: known >= computed >= settled.

    known     tokens that exist, those included that the device will draw in steps under way
    computed  tokens whose keys and values are in pages once the steps under way are done
    settled   computed tokens of steps whose results are back; these never roll back
    capacity  tokens that the row's pages have room for
    limit     known never grows beyond this
    """

    def __init__(self, num_rows: int) -> None:
        self.known: Counts = np.zeros(num_rows, np.int64)
        self.computed: Counts = np.zeros(num_rows, np.int64)
        self.settled: Counts = np.zeros(num_rows, np.int64)
        self.capacity: Counts = np.zeros(num_rows, np.int64)
        self.limit: Counts = np.zeros(num_rows, np.int64)
        self.in_flight: Counts = np.zeros(num_rows, np.int64)
        self.owner: Counts = np.full(num_rows, -1, np.int64)
        self.decoding: npt.NDArray[np.bool_] = np.zeros(num_rows, np.bool_)
        self.paused: npt.NDArray[np.bool_] = np.zeros(num_rows, np.bool_)
        self.tenants: list[Sequence | None] = [None] * num_rows
        self.free = list(range(num_rows - 1, -1, -1))
        self.num_moves = 0  # moves in and out so far, and pauses

    @property
    def num_running(self) -> int:
        return len(self.tenants) - len(self.free)

    def move_in(self, sequence: Sequence, known: int, computed: int) -> int:
        row = self.free.pop()
        self.num_moves += 1
        sequence.row = row
        self.tenants[row] = sequence
        self.known[row] = known
        self.computed[row] = self.settled[row] = computed
        self.limit[row] = sequence.submit.max_total_tokens
        self.in_flight[row] = 0
        self.owner[row] = sequence.number
        self.decoding[row] = False
        self.paused[row] = sequence.is_paused
        return row

    def pause(self, row: int, is_paused: bool) -> None:
        self.num_moves += 1  # the rows that run are others now
        self.paused[row] = is_paused

    def move_out(self, sequence: Sequence) -> int:
        row = sequence.row
        self.num_moves += 1
        sequence.row = NO_ROW
        self.tenants[row] = None
        self.owner[row] = -1
        self.decoding[row] = False
        self.paused[row] = False
        self.free.append(row)
        return row

    def tenant(self, row: int) -> Sequence:
        sequence = self.tenants[row]
        assert sequence is not None, f"row {row} has no tenant"
        return sequence
