"""What rows ask for beyond a draw, in records on the device: written when a row starts, read by every step it is in."""

from __future__ import annotations

import numpy as np
import torch

from pagoda.core.plan import IntArray
from pagoda.decoding import Feature
from pagoda.executor.cuda.edits import Edits
from pagoda.executor.cuda.wishes import MASKS, Wishes
from pagoda.kernels.cuda import sampling_rules as kernel
from pagoda.kernels.cuda.counting import bytes_of
from pagoda.kernels.cuda.sampling_rules import DrawingRows, mask_words, record_width, shape_logits

# Logits are shaped so many rows at a time, which bounds the copy of them: 34 MB for a vocabulary of 128,256.
MOST_ROWS = 64
MOST_RECORDS_WAITING = 64


class DeviceRules:
    """`token_ids` are those of all rows, [rows, tokens]: penalties are for a row's own."""

    def __init__(self, max_rows: int, vocab_size: int, token_ids: torch.Tensor) -> None:
        device = token_ids.device
        width = record_width(vocab_size)
        self._vocab_size = vocab_size
        self._token_ids = token_ids
        self.records = torch.zeros((max_rows, width), dtype=torch.int32, device=device)
        self._edits = Edits(self.records, MOST_RECORDS_WAITING * (width + 8 * kernel.HEAD.value))
        self._marked: set[int] = set()  # rows whose records say anything
        shape = (min(MOST_ROWS, max_rows), vocab_size)
        self._shaped = torch.empty(shape, dtype=torch.float32, device=device)
        self._counts = torch.zeros(shape, dtype=torch.int32, device=device)

    @property
    def num_bytes(self) -> int:
        """Without the tokens, which are the rows' own."""
        return bytes_of(self.records, self._shaped, self._counts) + self._edits.num_bytes

    @property
    def num_host_bytes(self) -> int:
        return self._edits.num_host_bytes

    def start(self, row: int, wishes: Wishes) -> None:
        """Of the row's new tenant; nothing is sent if neither it nor the one before it asks for anything."""
        head = self._head(wishes)
        if not head.any() and row not in self._marked:
            return
        (self._marked.add if head.any() else self._marked.discard)(row)
        first = row * self.records.shape[1]
        for offset, values in [(0, head), *self._parts(wishes)]:
            self._edits.add(first + offset, values)

    def flush(self) -> None:
        self._edits.flush()

    def shaped(self, logits: torch.Tensor, drawing: DrawingRows) -> torch.Tensor:
        """Up to MOST_ROWS rows of logits as their records want them; they stay until the next call."""
        out, counts = self._shaped[: len(logits)], self._counts[: len(logits)]
        shape_logits(out, logits, drawing, self.records, self._token_ids, counts)
        return out

    def _head(self, wishes: Wishes) -> IntArray:
        head = np.zeros(kernel.HEAD.value, np.int32)
        if wishes.features & Feature.PENALTIES:
            head[kernel.IS_PENALISED.value] = 1
            head[kernel.NUM_PROMPT_TOKENS.value] = wishes.num_prompt_tokens
            strengths = head.view(np.float32)
            strengths[kernel.REPETITION.value] = wishes.sampling.repetition_penalty
            strengths[kernel.PRESENCE.value] = wishes.sampling.presence_penalty
            strengths[kernel.FREQUENCY.value] = wishes.sampling.frequency_penalty
        if wishes.features & MASKS:
            head[kernel.STOPS_FROM.value] = 1 + wishes.rules.first_stop_position
        if wishes.features & Feature.BIAS:
            head[kernel.NUM_BIASES.value] = len(wishes.rules.bias_token_ids)
        head[kernel.NUM_SCORES.value] = wishes.num_scores
        return head

    def _parts(self, wishes: Wishes) -> list[tuple[int, IntArray]]:
        """What lies behind the head, where there is any."""
        rules, parts = wishes.rules, []
        if wishes.features & Feature.BIAS:
            parts.append((int(kernel.HEAD.value), rules.bias_token_ids))
            parts.append((int(kernel.BIAS_VALUES.value), rules.bias_values.view(np.int32)))
        if wishes.features & MASKS:
            masks = [self._mask(rules.allowed, banned) for banned in (rules.banned_early, rules.banned)]
            parts.append((int(kernel.MASKS.value), np.concatenate(masks)))
        return parts

    def _mask(self, allowed: IntArray, banned: IntArray) -> IntArray:
        """A bit for each token that may be drawn."""
        may_be_drawn = np.zeros(mask_words(self._vocab_size) * kernel.MASK_BITS, np.bool_)
        may_be_drawn[allowed if len(allowed) else slice(None)] = True
        may_be_drawn[banned] = False
        return np.packbits(may_be_drawn, bitorder="little").view(np.int32)
