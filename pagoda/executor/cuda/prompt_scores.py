"""How likely the model found the tokens of prompts, where rows ask: by kernels, and back with the step's tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from pagoda.core.plan import IntArray, RowPayload
from pagoda.core.result import TokenLogprob
from pagoda.executor.asked import Asked
from pagoda.executor.cuda.mailbox import Mailbox, Returns
from pagoda.executor.logprobs import token_logprob
from pagoda.kernels.cuda.counting import bytes_of
from pagoda.kernels.cuda.sampling_scores import SCORES_WIDTH, logprobs_of, score_scratch, score_tokens

ALIGNED = 4  # numbers of 32 bits

PromptScores = dict[int, tuple[tuple[int, TokenLogprob], ...]]
"""By entry of the plan, with the places of the tokens in the prompt."""


@dataclass(frozen=True, eq=False, slots=True)
class Piece:
    """Some tokens of a row's prompt, each of which follows a token of the step."""

    entry: int
    """Of the plan."""
    first: int
    """The token of the step before the first of them."""
    position: int
    """Of the first of them, in the prompt."""
    token_ids: IntArray
    num_top: int

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True, eq=False, slots=True)
class Scoring:
    """Of a step, on its way back."""

    turn: int
    pieces: tuple[Piece, ...]


class PromptScorer:
    """The prompts to be scored, as the host keeps them, and what the device needs for it. One step at a time."""

    def __init__(self, max_tokens: int, max_logits: int, vocab_size: int, device: torch.device) -> None:
        self._max_logits = max_logits
        self._vocab_size = vocab_size
        self._prompts: dict[int, tuple[IntArray, int]] = {}  # by row, with how many of the best tokens are listed
        # Tokens of the step, those that follow, and what is wanted of each.
        self._mailbox = Mailbox(3 * _aligned(max_tokens), device)
        self._every_row = torch.arange(max_logits, dtype=torch.int32, device=device)
        self._scores = torch.zeros((max_tokens, SCORES_WIDTH), dtype=torch.int32, device=device)
        self._scratch = score_scratch(max_logits, vocab_size, device)
        self._returns = Returns(max_tokens * SCORES_WIDTH, device)

    @property
    def num_bytes(self) -> int:
        return bytes_of(self._mailbox.received, self._every_row, self._scores, self._scratch)

    @property
    def num_host_bytes(self) -> int:
        return self._mailbox.num_host_bytes + self._returns.num_host_bytes

    def start(self, row: int, payload: RowPayload) -> None:
        num_top = payload.sampling.prompt_logprobs
        if num_top is not None:
            prompt = payload.token_ids[: payload.num_prompt_tokens]
            self._prompts[row] = prompt, min(num_top, self._vocab_size)

    def stop(self, row: int) -> None:
        self._prompts.pop(row, None)

    def score(
        self,
        asked: Asked,
        num_computed: IntArray,
        num_tokens: IntArray,
        logits_of: Callable[[torch.Tensor], torch.Tensor],
    ) -> Scoring | None:
        """Begin with those of a step: `num_computed` by row before it, `num_tokens` by entry. `logits_of` some of its
        tokens, at most `max_logits` at once. None: nobody asks."""
        pieces = self._pieces(asked, num_computed, num_tokens) if self._prompts else ()
        if not pieces:
            return None
        sent = self._send(pieces)
        count = sent.shape[1]
        for start in range(0, count, self._max_logits):
            part = slice(start, min(count, start + self._max_logits))
            tokens, next_ids, num_scores = sent[:, part]
            rows = self._every_row[: len(tokens)]
            score_tokens(self._scores[part], logits_of(tokens), next_ids, rows, num_scores, self._scratch)
        return Scoring(self._returns.fetch(self._scores[:count].view(-1)), pieces)

    def found(self, scoring: Scoring) -> PromptScores:
        """Waits for them."""
        counts = [piece.num_tokens for piece in scoring.pieces]
        numbers = self._returns.wait(scoring.turn, sum(counts) * SCORES_WIDTH).reshape(-1, SCORES_WIDTH)
        scores: PromptScores = {}
        for piece, own in zip(scoring.pieces, np.split(numbers, np.cumsum(counts[:-1])), strict=True):
            logprobs = logprobs_of(own, np.full(piece.num_tokens, 1 + piece.num_top, np.int32))
            ids = piece.token_ids.tolist()
            scores[piece.entry] = tuple(
                (piece.position + index, token_logprob(logprobs, index, token)) for index, token in enumerate(ids)
            )
        return scores

    def _pieces(self, asked: Asked, num_computed: IntArray, num_tokens: IntArray) -> tuple[Piece, ...]:
        found = []
        starts = np.cumsum(num_tokens) - num_tokens
        for entry, row in enumerate(asked.rows.tolist()):
            if row not in self._prompts:
                continue
            prompt, num_top = self._prompts[row]
            position = int(num_computed[row]) + 1
            token_ids = prompt[position : position + int(num_tokens[entry])]  # its last one foretells no prompt token
            if len(token_ids):
                found.append(Piece(entry, int(starts[entry]), position, token_ids, num_top))
        return tuple(found)

    def _send(self, pieces: tuple[Piece, ...]) -> torch.Tensor:
        count = sum(piece.num_tokens for piece in pieces)
        width = _aligned(count)
        table = self._mailbox.open()[: 3 * width].reshape(3, width)
        place = 0
        for piece in pieces:
            own = table[:, place : place + piece.num_tokens]
            own[0] = np.arange(piece.first, piece.first + piece.num_tokens)
            own[1] = piece.token_ids
            own[2] = 1 + piece.num_top
            place += piece.num_tokens
        self._mailbox.send(3 * width)
        return self._mailbox.received[: 3 * width].view(3, width)[:, :count]


def _aligned(count: int) -> int:
    """So many numbers end where another tensor may begin: a kernel is built anew for one that begins elsewhere."""
    return -(-count // ALIGNED) * ALIGNED
