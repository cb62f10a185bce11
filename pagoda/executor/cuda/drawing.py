"""Tokens from logits on the device, with all that a request may ask for."""

from __future__ import annotations

import numpy as np
import torch

from pagoda.core.plan import IntArray
from pagoda.executor.cuda.mailbox import Mailbox, Returns
from pagoda.executor.cuda.rules import MOST_ROWS, DeviceRules
from pagoda.executor.cuda.wishes import DrawKind, Wishes
from pagoda.kernels.cuda.counting import bytes_of
from pagoda.kernels.cuda.sampling import Borders, DrawTensors, sample_tokens, sampling_workspace
from pagoda.kernels.cuda.sampling_borders import find_borders
from pagoda.kernels.cuda.sampling_candidates import candidate_lists
from pagoda.kernels.cuda.sampling_rules import NUM_SCORES, DrawingRows
from pagoda.kernels.cuda.sampling_scores import SCORES_WIDTH, logprobs_of, score_scratch, score_tokens
from pagoda.kernels.cuda.sampling_typical import keep_typical
from pagoda.kernels.sampling import Draws, TokenLogprobs


class DeviceDraws:
    """Draws from logits with what the host sent last about the rows; launches only, so that it may be captured."""

    def __init__(self, max_rows: int, vocab_size: int, token_ids: torch.Tensor) -> None:
        device = token_ids.device
        self.vocab_size = vocab_size
        self._max_rows = max_rows
        self._rules = DeviceRules(max_rows, vocab_size, token_ids)
        self._workspace = sampling_workspace(max_rows, vocab_size, device)
        self._lists = candidate_lists(max_rows, vocab_size, device)
        self._border_logits = torch.zeros(max_rows, device=device)
        self._border_ids = torch.zeros(max_rows, dtype=torch.int32, device=device)
        self._scratch = score_scratch(max_rows, vocab_size, device)
        self._scores = torch.zeros((max_rows, SCORES_WIDTH), dtype=torch.int32, device=device)
        self._returns = Returns(max_rows * SCORES_WIDTH, device)
        # Two fields of eight bytes, then five of four.
        self._mailbox = Mailbox(9 * max_rows, device)

    @property
    def num_bytes(self) -> int:
        of_borders = (self._border_logits, self._border_ids, self._lists)
        of_scores = (self._scores, self._scratch)
        own = bytes_of(self._workspace, *of_borders, *of_scores, self._mailbox.received)
        return own + self._rules.num_bytes

    @property
    def num_host_bytes(self) -> int:
        return sum(owner.num_host_bytes for owner in (self._mailbox, self._returns, self._rules))

    def start(self, row: int, wishes: Wishes) -> None:
        """Of the row's new tenant; they arrive with `flush`."""
        self._rules.start(row, wishes)

    def flush(self) -> None:
        self._rules.flush()

    def send(self, draws: Draws | None) -> None:
        """What the rows of the next step draw with; rows beyond them are greedy, and without `draws` all are."""
        buffer = self._mailbox.open()
        narrow = buffer[4 * self._max_rows :].reshape(5, -1)
        narrow[0].view(np.float32)[:] = 0.0
        if draws is not None:
            count = len(draws.temperature)
            wide = buffer[: 4 * self._max_rows].view(np.int64).reshape(2, -1)
            wide[0, :count] = draws.seeds.view(np.int64)
            with np.errstate(divide="ignore"):
                logs = -np.inf if draws.min_p is None else np.log(draws.min_p.astype(np.float64))
            wide[1].view(np.float64)[:count] = logs
            narrow[0].view(np.float32)[:count] = draws.temperature
            narrow[1].view(np.float32)[:count] = 1.0 if draws.top_p is None else draws.top_p
            narrow[2, :count] = 0 if draws.top_k is None else draws.top_k
            narrow[3, :count] = draws.sample_indices
            narrow[4].view(np.float32)[:count] = 1.0 if draws.typical_p is None else draws.typical_p
        self._mailbox.send(len(buffer))

    def choose(self, outcomes: torch.Tensor, logits: torch.Tensor, kind: DrawKind, drawing: DrawingRows) -> None:
        """A token for each row of logits, and behind them whether each is broken; then the scores of those that want
        any."""
        count = len(logits)
        token_ids, is_broken = outcomes[:count], outcomes[count:]
        if kind is DrawKind.GREEDY:
            sample_tokens(token_ids, is_broken, logits, self._workspace)
            return
        rows_at_once = MOST_ROWS if kind >= DrawKind.RULED else count
        for first in range(0, count, rows_at_once):
            part = slice(first, min(count, first + rows_at_once))
            positions = drawing.positions[part]
            own = logits[part]
            if kind >= DrawKind.RULED:
                own = self._rules.shaped(own, DrawingRows(drawing.rows[part], positions))
            self._draw(token_ids[part], is_broken[part], own, kind, part, positions)
        if kind >= DrawKind.SCORED:
            num_scores = self._rules.records[:, NUM_SCORES.value]
            score_tokens(self._scores[:count], logits, token_ids, drawing.rows, num_scores, self._scratch)

    def fetch_scores(self, count: int) -> int:
        """Begin to copy those of so many rows; to be asked for by the number that comes back."""
        return self._returns.fetch(self._scores[:count].view(-1))

    def scores(self, turn: int, num_scores: IntArray) -> TokenLogprobs:
        """Of the rows that want any; num_scores[r] is what the record of row r says."""
        numbers = self._returns.wait(turn, len(num_scores) * SCORES_WIDTH).reshape(-1, SCORES_WIDTH)
        return logprobs_of(numbers, num_scores)

    def _draw(
        self,
        token_ids: torch.Tensor,
        is_broken: torch.Tensor,
        logits: torch.Tensor,
        kind: DrawKind,
        part: slice,
        positions: torch.Tensor,
    ) -> None:
        most, received = self._max_rows, self._mailbox.received
        seeds, log_min_p = received[: 4 * most].view(torch.int64).view(2, most)[:, part]
        narrow = received[4 * most :].view(5, most)[:, part]
        temperature, top_p, typical_p = (narrow[place].view(torch.float32) for place in (0, 1, 4))
        draws = DrawTensors(temperature, seeds, narrow[3], positions)
        borders = None
        if kind >= DrawKind.FILTERED:
            borders = Borders(self._border_logits[part], self._border_ids[part])
            top_k, log_min_p = narrow[2], log_min_p.view(torch.float64)
            if kind is DrawKind.TYPICAL:  # behind these two, and before top_p, which is a share of what it leaves
                find_borders(borders, logits, draws, top_k, None, log_min_p, lists=self._lists)
                keep_typical(logits, temperature, borders, typical_p)
            # Where it left something, top_k and min_p leave that; a row without it is drawn as in any other step.
            find_borders(borders, logits, draws, top_k, top_p, log_min_p, lists=self._lists)
        sample_tokens(token_ids, is_broken, logits, self._workspace, draws, borders)
