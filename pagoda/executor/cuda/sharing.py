"""Which decoding rows begin with the same pages, so that attention may read those once for all of them."""

from __future__ import annotations

import numpy as np
import torch

from pagoda.core.plan import IntArray, RowStart, TableUpdate
from pagoda.executor.cuda.mailbox import Mailbox
from pagoda.executor.rows import Rows
from pagoda.kernels.cuda.counting import bytes_of
from pagoda.kernels.cuda.shared_attention import SharedRows

MOST_GROUPS = 16
FEWEST_ROWS = 4
FEWEST_TOKENS = 256


class PageSharing:
    """The first cache group's page tables as the host knows them, and the groups among the rows of a step."""

    def __init__(self, num_rows: int, max_tokens: int, page_size: int, device: torch.device) -> None:
        self._page_size = page_size
        self._tables: IntArray = np.full((num_rows, -(-max_tokens // page_size)), -1, np.int32)
        self._num_pages: IntArray = np.zeros(num_rows, np.int32)
        self._mailbox = Mailbox(2 * num_rows + MOST_GROUPS + 1, device)
        self._num_rows = num_rows

    @property
    def num_bytes(self) -> int:
        return bytes_of(self._mailbox.received)

    @property
    def num_host_bytes(self) -> int:
        return self._mailbox.num_host_bytes

    def start(self, start: RowStart) -> None:
        pages = start.page_tables[0]
        self._tables[start.row, : len(pages)] = pages
        self._num_pages[start.row] = len(pages)

    def update(self, update: TableUpdate) -> None:
        if update.group == 0:
            end = update.start + len(update.pages)
            self._tables[update.row, update.start : end] = update.pages
            self._num_pages[update.row] = max(int(self._num_pages[update.row]), end)

    def find(self, rows: Rows, num_computed: IntArray) -> list[tuple[Rows, int]]:
        """Groups of entries, each with the tokens that its rows begin with; the largest first."""
        first_pages = self._tables[rows, 0]
        heads, counts = np.unique(first_pages, return_counts=True)
        groups = []
        for head in heads[(counts >= FEWEST_ROWS) & (heads >= 0)].tolist():
            (entries,) = (first_pages == head).nonzero()
            own = rows[entries]
            most = min(int(self._num_pages[own].min()), int(num_computed[own].min()) // self._page_size)
            tables = self._tables[own, :most]
            is_same = (tables == tables[0]).all(axis=0)
            num_tokens = self._page_size * (most if is_same.all() else int(is_same.argmin()))
            if num_tokens >= FEWEST_TOKENS:
                groups.append((entries, num_tokens))
        groups.sort(key=lambda group: -len(group[0]) * group[1])
        return groups[:MOST_GROUPS]

    def send(self, groups: list[tuple[Rows, int]]) -> None:
        buffer, most = self._mailbox.open(), self._num_rows
        buffer[:most] = 0
        starts = buffer[2 * most :]
        starts[:] = 0
        for number, (entries, num_tokens) in enumerate(groups):
            first = int(starts[number])
            buffer[entries] = num_tokens
            buffer[most + first : most + first + len(entries)] = entries
            starts[number + 1 :] = first + len(entries)
        self._mailbox.send(len(buffer))

    def shared_rows(self, num_entries: int) -> SharedRows:
        """What was sent last, in memory that lies still."""
        received, most = self._mailbox.received, self._num_rows
        return SharedRows(received[:num_entries], received[most : most + num_entries], received[2 * most :])
