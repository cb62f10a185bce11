"""The inputs of a step in memory that lies still, so that a captured graph finds them where they were."""

from __future__ import annotations

import numpy as np
import torch

from pagoda.core.plan import BoolArray, IntArray
from pagoda.executor.cuda.device_rows import DeviceRows
from pagoda.executor.cuda.mailbox import Mailbox
from pagoda.kernels.cuda.batch import DeviceBatch
from pagoda.kernels.cuda.counting import bytes_of
from pagoda.kernels.cuda.rows import advance, gather_table, gather_tokens
from pagoda.kernels.cuda.shared_attention import SharedRows

PADDING = -1


class StepInputs:
    """The host says which rows compute how many tokens; ids, positions and pages are gathered on the device."""

    def __init__(
        self, rows: DeviceRows, max_rows: int, max_tokens: int, page_size: int, vocab_size: int, device: torch.device
    ) -> None:
        self._rows = rows
        self._vocab_size = vocab_size
        self._page_size = page_size
        self._max_rows = max_rows
        self._mailbox = Mailbox(4 * max_rows + 2, device)
        received = self._mailbox.received
        self._entry_rows = received[:max_rows]
        self._draws = received[max_rows : 2 * max_rows]
        self._row_starts = received[2 * max_rows : 3 * max_rows + 1]
        self._prompt_starts = received[3 * max_rows + 1 :]

        def zeros(*shape: int) -> torch.Tensor:
            return torch.zeros(shape, dtype=torch.int32, device=device)

        most = max(max_rows + 1, max_tokens)
        self.counting = torch.from_numpy(np.arange(most, dtype=np.int32)).to(device)
        self._token_ids, self._positions, self._entries = (zeros(most) for _ in range(3))
        self._context_lens = zeros(max_rows)
        self._tables = [zeros(*table.shape) for table in rows.page_tables]
        self._outcomes = zeros(2 * max_rows)

    @property
    def num_bytes(self) -> int:
        tokens = (self.counting, self._token_ids, self._positions, self._entries)
        rows = (self._mailbox.received, self._context_lens, self._outcomes)
        return bytes_of(*tokens, *rows, *self._tables)

    @property
    def num_host_bytes(self) -> int:
        return self._mailbox.num_host_bytes

    def send_decoding(self, rows: IntArray, num_entries: int) -> None:
        """Rows that compute one token each, and padding up to `num_entries`."""
        buffer = self._mailbox.open()
        buffer[: len(rows)] = rows
        buffer[len(rows) : num_entries] = PADDING
        self._mailbox.send(num_entries)

    def send(self, rows: IntArray, num_tokens: IntArray, draws: BoolArray, num_decoding: int) -> None:
        count, most = len(rows), self._max_rows
        buffer = self._mailbox.open()
        buffer[:count] = rows
        numbers = np.cumsum(draws, dtype=np.int32) - 1
        buffer[most : most + count] = np.where(draws, numbers, PADDING)
        starts = buffer[2 * most : 2 * most + count + 1]
        starts[0] = 0
        np.cumsum(num_tokens, out=starts[1:])
        buffer[3 * most + 1 : 3 * most + 2 + count - num_decoding] = starts[num_decoding:] - starts[num_decoding]
        self._mailbox.send(len(buffer))

    def outcomes(self, count: int) -> torch.Tensor:
        """Room for `count` drawn tokens and, behind them, whether each is broken."""
        return self._outcomes[: 2 * count]

    def decoding_batch(self, num_entries: int, shared: SharedRows | None = None) -> DeviceBatch:
        """Gathers the next token of each entry. Launches only: it may be captured."""
        return self._batch(num_entries, num_entries, self.counting[: num_entries + 1], num_entries, 1, shared)

    def batch(
        self, num_entries: int, num_tokens: int, num_decoding: int, max_new: int, shared: SharedRows | None = None
    ) -> DeviceBatch:
        return self._batch(num_entries, num_tokens, self._row_starts[: num_entries + 1], num_decoding, max_new, shared)

    def advance_decoding(self, batch: DeviceBatch) -> None:
        self._advance(batch, self.counting[: batch.num_entries])

    def advance(self, batch: DeviceBatch) -> None:
        """Count what was computed and put drawn tokens behind their rows."""
        self._advance(batch, self._draws[: batch.num_entries])

    def _batch(
        self,
        num_entries: int,
        num_tokens: int,
        row_starts: torch.Tensor,
        num_decoding: int,
        max_new: int,
        shared: SharedRows | None = None,
    ) -> DeviceBatch:
        entry_rows, context_lens = self._entry_rows[:num_entries], self._context_lens[:num_entries]
        ids, positions, entries = (array[:num_tokens] for array in (self._token_ids, self._positions, self._entries))
        rows = self._rows
        gather_tokens(
            ids, positions, entries, context_lens, entry_rows, row_starts, rows.token_ids, rows.num_computed, max_new
        )
        for out, table in zip(self._tables, rows.page_tables, strict=True):
            gather_table(out, table, entry_rows, context_lens, self._page_size)
        return DeviceBatch(
            token_ids=ids,
            positions=positions,
            entries=entries,
            row_starts=row_starts,
            prompt_starts=self._prompt_starts[: num_entries - num_decoding + 1],
            context_lens=context_lens,
            page_tables=tuple(table[:num_entries] for table in self._tables),
            num_decoding=num_decoding,
            max_new=max_new,
            shared=shared,
        )

    def _advance(self, batch: DeviceBatch, draws: torch.Tensor) -> None:
        rows = self._rows
        entry_rows = self._entry_rows[: batch.num_entries]
        advance(
            rows.token_ids, rows.num_computed, entry_rows, batch.context_lens, draws, self._outcomes, self._vocab_size
        )
