"""Every running sequence on the device: its tokens, its page tables, how far it is. Plans change them by edits."""

from __future__ import annotations

import numpy as np
import torch

from pagoda.core.plan import RowPayload, RowStart, TableUpdate
from pagoda.executor.cuda.edits import Edits
from pagoda.kernels.cuda.counting import bytes_of


class DeviceRows:
    """Views of one arena of int32: `token_ids` [rows, tokens], `num_computed` [rows], one table a cache group."""

    def __init__(self, num_rows: int, max_tokens: int, page_size: int, num_groups: int, device: torch.device) -> None:
        self._width = max_tokens + 1
        self._max_pages = -(-max_tokens // page_size)
        num_tokens, num_pages = num_rows * self._width, num_rows * self._max_pages
        self._first_table, self._num_table = num_tokens, num_pages
        self._first_count = num_tokens + num_groups * num_pages
        self.arena = torch.zeros(self._first_count + num_rows, dtype=torch.int32, device=device)
        self.token_ids = self.arena[:num_tokens].view(num_rows, self._width)
        self.page_tables = [
            self.arena[num_tokens + group * num_pages : num_tokens + (group + 1) * num_pages].view(num_rows, -1)
            for group in range(num_groups)
        ]
        self.num_computed = self.arena[self._first_count :]
        self._edits = Edits(self.arena, 4 * self._first_count)

    @property
    def num_bytes(self) -> int:
        return bytes_of(self.arena) + self._edits.num_bytes

    @property
    def num_host_bytes(self) -> int:
        return self._edits.num_host_bytes

    def start(self, start: RowStart, payload: RowPayload) -> None:
        self._edits.add(start.row * self._width, payload.token_ids)
        for group, pages in enumerate(start.page_tables):
            self._edits.add(self._table_place(start.row, group), np.array(pages, np.int32))
        self._edits.add(self._first_count + start.row, np.array([start.num_computed], np.int32))

    def update_table(self, update: TableUpdate) -> None:
        place = self._table_place(update.row, update.group) + update.start
        self._edits.add(place, np.array(update.pages, np.int32))

    def flush(self) -> None:
        """Send what has gathered."""
        self._edits.flush()

    def _table_place(self, row: int, group: int) -> int:
        return self._first_table + group * self._num_table + row * self._max_pages
