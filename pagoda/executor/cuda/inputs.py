"""The inputs of a step in memory that lies still, so that a captured graph finds them where they were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from pagoda.core.plan import BoolArray, IntArray
from pagoda.executor.cuda.device_rows import DeviceRows
from pagoda.executor.cuda.mailbox import Mailbox
from pagoda.kernels.cuda.batch import DeviceBatch
from pagoda.kernels.cuda.counting import bytes_of
from pagoda.kernels.cuda.rows import advance, gather_table, gather_tokens
from pagoda.kernels.cuda.sampling_rules import DrawingRows
from pagoda.kernels.cuda.shared_attention import SharedRows

PADDING = -1
ALIGNED_NUMBERS = 4  # in sixteen bytes


class StepInputs:
    """The host says which rows compute how many tokens; ids, positions and pages are gathered on the device."""

    def __init__(
        self, rows: DeviceRows, max_rows: int, max_tokens: int, page_size: int, vocab_size: int, device: torch.device
    ) -> None:
        self._rows = rows
        self._vocab_size = vocab_size
        self._page_size = page_size
        # An entry more than there are rows: tokens that pad the step are its own.
        self._places = _places((max_rows + 1, max_rows, max_rows + 2, max_rows + 1, *(max_rows,) * 3))
        self._mailbox = Mailbox(self._places[-1].stop, device)
        views = (self._mailbox.received[place] for place in self._places)
        self._entry_rows, self._draws, self._row_starts, self._prompt_starts, *of_draws = views
        self._logit_tokens, self._draw_rows, self._draw_positions = of_draws

        def zeros(*shape: int) -> torch.Tensor:
            return torch.zeros(shape, dtype=torch.int32, device=device)

        most = max(max_rows + 1, max_tokens)
        self.counting = torch.from_numpy(np.arange(most, dtype=np.int32)).to(device)
        self._token_ids, self._positions, self._entries = (zeros(most) for _ in range(3))
        self._context_lens = zeros(max_rows + 1)
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

    def send(
        self,
        rows: IntArray,
        num_tokens: IntArray,
        draws: BoolArray,
        logit_tokens: IntArray,
        positions: IntArray,
        padded_tokens: int,
    ) -> None:
        """Rows that compute some tokens each, and an entry of padding that makes them `padded_tokens`. Of those that
        draw: the token whose logits foretell the next one, and the position of that one."""
        count, num_drawing = len(rows), len(logit_tokens)
        buffer = self._mailbox.open()
        entry_rows, numbers, starts, prompt_starts, *of_draws = (buffer[place] for place in self._places)
        entry_rows[:count] = rows
        entry_rows[count] = PADDING
        numbers[:count] = np.where(draws, np.cumsum(draws, dtype=np.int32) - 1, PADDING)
        starts[0] = 0
        np.cumsum(num_tokens, out=starts[1 : count + 1])
        starts[count + 1] = padded_tokens
        first = num_decoding(num_tokens)
        prompt_starts[: count - first + 1] = starts[first : count + 1] - starts[first]
        for out, values in zip(of_draws, (logit_tokens, rows[draws], positions), strict=True):
            out[:num_drawing] = values
        self._mailbox.send(len(buffer))

    def outcomes(self, count: int) -> torch.Tensor:
        """Room for `count` drawn tokens and, behind them, whether each is broken."""
        return self._outcomes[: 2 * count]

    def decoding_batch(self, num_entries: int, shared: SharedRows | None = None) -> DeviceBatch:
        """Gathers the next token of each entry. Launches only: it may be captured."""
        self._gather_tokens(num_entries, num_entries, self.counting, 1)
        self._gather_tables(num_entries)
        return self._view(num_entries, num_entries, self.counting, num_entries, 1, shared)

    def logit_tokens(self, count: int) -> torch.Tensor:
        """The tokens that the next ones are drawn from."""
        return self._logit_tokens[:count]

    def drawing(self, count: int) -> DrawingRows:
        """The rows that `send` told of."""
        return DrawingRows(self._draw_rows[:count], self._draw_positions[:count])

    def drawing_of(self, batch: DeviceBatch) -> DrawingRows:
        """All rows of a decoding batch; the next token of each stands behind its context."""
        return DrawingRows(self._entry_rows[: batch.num_entries], batch.context_lens)

    def batch(self, num_tokens: IntArray, padded_tokens: int, shared: SharedRows | None = None) -> DeviceBatch:
        """Gathers what `send` told of, the padding too, and gives a batch without it."""
        num_entries, total, longest = len(num_tokens), int(num_tokens.sum()), int(num_tokens.max())
        self._gather_tokens(num_entries + 1, padded_tokens, self._row_starts, max(longest, padded_tokens - total))
        self._gather_tables(num_entries)
        return self._view(num_entries, total, self._row_starts, num_decoding(num_tokens), longest, shared)

    def with_padding(self, batch: DeviceBatch, padded_tokens: int) -> DeviceBatch:
        """The same with the padding at its end: for all but attention, and for that too if a prompt is all there is."""
        arrays = (self._token_ids, self._positions, self._entries)
        ids, positions, entries = (array[:padded_tokens] for array in arrays)
        return replace(batch, token_ids=ids, positions=positions, entries=entries, max_new=padded_tokens)

    def advance_decoding(self, batch: DeviceBatch) -> None:
        self._advance(batch, self.counting[: batch.num_entries])

    def advance(self, batch: DeviceBatch) -> None:
        """Count what was computed and put drawn tokens behind their rows."""
        self._advance(batch, self._draws[: batch.num_entries])

    def _gather_tokens(self, num_entries: int, num_tokens: int, row_starts: torch.Tensor, max_new: int) -> None:
        rows = self._rows
        gather_tokens(
            self._token_ids[:num_tokens],
            self._positions[:num_tokens],
            self._entries[:num_tokens],
            self._context_lens[:num_entries],
            self._entry_rows[:num_entries],
            row_starts,
            rows.token_ids,
            rows.num_computed,
            max_new,
        )

    def _gather_tables(self, num_entries: int) -> None:
        entry_rows, context_lens = self._entry_rows[:num_entries], self._context_lens[:num_entries]
        for out, table in zip(self._tables, self._rows.page_tables, strict=True):
            gather_table(out, table, entry_rows, context_lens, self._page_size)

    def _view(
        self,
        num_entries: int,
        num_tokens: int,
        row_starts: torch.Tensor,
        num_decoding: int,
        max_new: int,
        shared: SharedRows | None = None,
    ) -> DeviceBatch:
        return DeviceBatch(
            token_ids=self._token_ids[:num_tokens],
            positions=self._positions[:num_tokens],
            entries=self._entries[:num_tokens],
            row_starts=row_starts[: num_entries + 1],
            prompt_starts=self._prompt_starts[: num_entries - num_decoding + 1],
            context_lens=self._context_lens[:num_entries],
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


def num_decoding(num_tokens: IntArray) -> int:
    """How many entries stand before the first that has more than one token."""
    is_prompt = num_tokens > 1
    return int(is_prompt.argmax()) if is_prompt.any() else len(num_tokens)


def _places(sizes: Sequence[int]) -> list[slice]:
    """One after the other, each from an address on that kernels are built for."""
    rounded = [-(-size // ALIGNED_NUMBERS) * ALIGNED_NUMBERS for size in sizes]
    return [slice(end - size, end) for size, end in zip(rounded, np.cumsum(rounded).tolist(), strict=True)]
