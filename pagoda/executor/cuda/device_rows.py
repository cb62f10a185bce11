"""Every running sequence on the device: its tokens, its page tables, how far it is. Plans change them by edits."""

from __future__ import annotations

import numpy as np
import torch

from pagoda.core.plan import IntArray, RowPayload, RowStart, TableUpdate
from pagoda.executor.cuda.mailbox import Mailbox
from pagoda.kernels.cuda.counting import bytes_of
from pagoda.kernels.cuda.rows import apply_edits

MAILBOX_NUMBERS = 1 << 22
EDIT_NUMBERS = 3


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
        self._mailbox = Mailbox(min(MAILBOX_NUMBERS, 4 * self._first_count), device)
        self._edits: list[tuple[int, IntArray]] = []
        self._num_waiting = 0

    @property
    def num_bytes(self) -> int:
        return bytes_of(self.arena, self._mailbox.received)

    @property
    def num_host_bytes(self) -> int:
        return self._mailbox.num_host_bytes

    def start(self, start: RowStart, payload: RowPayload) -> None:
        self._edit(start.row * self._width, payload.token_ids)
        for group, pages in enumerate(start.page_tables):
            self._edit(self._table_place(start.row, group), np.array(pages, np.int32))
        self._edit(self._first_count + start.row, np.array([start.num_computed], np.int32))

    def update_table(self, update: TableUpdate) -> None:
        place = self._table_place(update.row, update.group) + update.start
        self._edit(place, np.array(update.pages, np.int32))

    def flush(self) -> None:
        """Send what has gathered, in one copy and one launch."""
        if not self._edits:
            return
        count = len(self._edits)
        sizes = [len(values) for _, values in self._edits]
        buffer = self._mailbox.open()
        first = EDIT_NUMBERS * count
        table = buffer[:first].reshape(count, EDIT_NUMBERS)
        table[:, 0] = [target for target, _ in self._edits]
        table[:, 2] = sizes
        np.cumsum(sizes[:-1], out=table[1:, 1])
        table[0, 1] = 0
        total = first + sum(sizes)
        np.concatenate([values for _, values in self._edits], out=buffer[first:total])
        self._mailbox.send(total)
        received = self._mailbox.received
        apply_edits(self.arena, received[:first].view(count, EDIT_NUMBERS), received[first:total], max(sizes))
        self._edits.clear()
        self._num_waiting = 0

    def _table_place(self, row: int, group: int) -> int:
        return self._first_table + group * self._num_table + row * self._max_pages

    def _edit(self, target: int, values: IntArray) -> None:
        size = len(values) + EDIT_NUMBERS
        if not len(values):
            return
        if self._num_waiting + size > self._mailbox.capacity:
            self.flush()
            if self.arena.is_cuda:  # the buffers take turns once a step; this one did so in the midst of it
                torch.cuda.current_stream().synchronize()
        self._edits.append((target, values))
        self._num_waiting += size
