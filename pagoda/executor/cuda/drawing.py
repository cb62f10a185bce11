"""Where a row's tokens are drawn: on the device where its kernels know all that the row asks, else on the host."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import torch

from pagoda.decoding import Feature
from pagoda.executor.cuda.mailbox import Mailbox
from pagoda.kernels.cuda.counting import bytes_of
from pagoda.kernels.cuda.sampling import Borders, DrawTensors, sample_tokens, sampling_workspace
from pagoda.kernels.cuda.sampling_borders import find_borders
from pagoda.kernels.cuda.sampling_candidates import candidate_lists
from pagoda.kernels.sampling import Draws


class DrawKind(IntEnum):
    """A step is of the last kind that one of its rows is."""

    GREEDY = 0
    DRAWN = 1
    FILTERED = 2
    HOST = 3


FILTERS = Feature.TOP_K | Feature.TOP_P | Feature.MIN_P


def draw_kind(features: int) -> DrawKind:
    if not features:
        return DrawKind.GREEDY
    if features & ~(Feature.DRAW | FILTERS):
        return DrawKind.HOST
    return DrawKind.FILTERED if features & FILTERS else DrawKind.DRAWN


class DeviceDraws:
    """Draws from logits with what the host sent last about the rows; launches only, so that it may be captured."""

    def __init__(self, max_rows: int, vocab_size: int, device: torch.device) -> None:
        self._max_rows = max_rows
        self._workspace = sampling_workspace(max_rows, vocab_size, device)
        self._lists = candidate_lists(max_rows, vocab_size, device)
        self._border_logits = torch.zeros(max_rows, device=device)
        self._border_ids = torch.zeros(max_rows, dtype=torch.int32, device=device)
        # Two fields of eight bytes, then five of four.
        self._mailbox = Mailbox(9 * max_rows, device)

    @property
    def num_bytes(self) -> int:
        borders = (self._border_logits, self._border_ids)
        return bytes_of(self._workspace, self._lists, *borders, self._mailbox.received)

    @property
    def num_host_bytes(self) -> int:
        return self._mailbox.num_host_bytes

    def send(self, draws: Draws) -> None:
        """What the rows of the next step draw with; rows beyond them are greedy."""
        count = len(draws.temperature)
        buffer = self._mailbox.open()
        wide = buffer[: 4 * self._max_rows].view(np.int64).reshape(2, -1)
        narrow = buffer[4 * self._max_rows :].reshape(5, -1)
        wide[0, :count] = draws.seeds.view(np.int64)
        with np.errstate(divide="ignore"):
            logs = -np.inf if draws.min_p is None else np.log(draws.min_p.astype(np.float64))
        wide[1].view(np.float64)[:count] = logs
        narrow[0].view(np.float32)[:] = 0.0
        narrow[0].view(np.float32)[:count] = draws.temperature
        narrow[1].view(np.float32)[:count] = 1.0 if draws.top_p is None else draws.top_p
        narrow[2, :count] = 0 if draws.top_k is None else draws.top_k
        narrow[3, :count] = draws.sample_indices
        narrow[4, :count] = draws.positions
        self._mailbox.send(len(buffer))

    def choose(
        self, outcomes: torch.Tensor, logits: torch.Tensor, kind: DrawKind, positions: torch.Tensor | None = None
    ) -> None:
        """A token for each row of logits, and behind them whether each is broken; `positions` replace those sent."""
        count = len(logits)
        token_ids, is_broken = outcomes[:count], outcomes[count:]
        if kind is DrawKind.GREEDY:
            sample_tokens(token_ids, is_broken, logits, self._workspace)
            return
        most, received = self._max_rows, self._mailbox.received
        seeds, log_min_p = received[: 4 * most].view(torch.int64).view(2, most)[:, :count]
        narrow = received[4 * most :].view(5, most)[:, :count]
        places = narrow[4] if positions is None else positions
        draws = DrawTensors(narrow[0].view(torch.float32), seeds, narrow[3], places)
        borders = None
        if kind is DrawKind.FILTERED:
            borders = Borders(self._border_logits[:count], self._border_ids[:count])
            top_p = narrow[1].view(torch.float32)
            log_min_p = log_min_p.view(torch.float64)
            find_borders(borders, logits, draws, narrow[2], top_p, log_min_p, lists=self._lists)
        sample_tokens(token_ids, is_broken, logits, self._workspace, draws, borders)
