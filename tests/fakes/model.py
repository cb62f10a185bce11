"""A model without weights: the next token is a hash of the seed, the sample and every token before it.

As in a real model, what a position leaves in the cache depends on the token there and on what the position before it
left. A text therefore has one right answer, and any slip of rows, pages, forks or late results changes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pagoda.core.request import FinishReason
from pagoda.core.sampling_params import SamplingParams

BEFORE_THE_FIRST = 1
WORD = (1 << 63) - 1


@dataclass(frozen=True)
class FakeModel:
    vocab_size: int = 40
    end_token_ids: tuple[int, ...] = (0,)

    def state_after(self, state: int, token_id: int) -> int:
        """What a token leaves in the cache, given what the one before it left."""
        return _hash("state", state, token_id)

    def draw(self, state: int, seed: int, sample_index: int, banned: Collection[int]) -> int:
        """The token that follows the one that left `state`."""
        attempt = 0
        while (token_id := _hash("draw", state, seed, sample_index, attempt) % self.vocab_size) in banned:
            attempt += 1
        return token_id

    def guess(self, state: int, right: int) -> int:
        """A draft of the token `right`: often right, sometimes another."""
        luck = _hash("luck", state)
        return right if luck % 5 < 3 else (right + 1 + luck % (self.vocab_size - 1)) % self.vocab_size

    def banned_at(self, sampling: SamplingParams, num_output: int) -> frozenset[int]:
        """What may not be drawn as the answer's token number `num_output`, counted from 0."""
        if num_output >= sampling.min_tokens:
            return frozenset()
        return frozenset(sampling.stop_token_ids) | (frozenset() if sampling.ignore_eos else set(self.end_token_ids))

    def states(self, token_ids: Sequence[int]) -> list[int]:
        states, state = [], BEFORE_THE_FIRST
        for token_id in token_ids:
            state = self.state_after(state, token_id)
            states.append(state)
        return states

    def answer(
        self, prompt: Sequence[int], sampling: SamplingParams, seed: int, sample_index: int, max_model_len: int
    ) -> tuple[list[int], FinishReason]:
        """The whole answer, worked out alone."""
        state = self.states(prompt)[-1]
        most = max_model_len - len(prompt)
        if sampling.max_tokens is not None:
            most = min(most, sampling.max_tokens)
        answer: list[int] = []
        while True:
            token_id = self.draw(state, seed, sample_index, self.banned_at(sampling, len(answer)))
            state = self.state_after(state, token_id)
            answer.append(token_id)
            is_end = token_id in self.end_token_ids and not sampling.ignore_eos
            if len(answer) > sampling.min_tokens and (is_end or token_id in sampling.stop_token_ids):
                return answer, "stop"
            if len(answer) == most:
                return answer, "length"


def _hash(*parts: object) -> int:
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "little") & WORD
