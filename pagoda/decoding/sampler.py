"""The sampling state of a worker's rows: written when a sequence comes, gathered at every step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pagoda.core.sampling_params import SamplingParams
from pagoda.decoding.token_history import TokenHistory
from pagoda.decoding.token_rules import TokenRules, token_rules
from pagoda.kernels.sampling import BiasCells, Draws, IntArray, Penalties, SamplingBatch, TokenCells

SEED_MASK = (1 << 64) - 1
ROW_BYTES = 11 * 4 + 8  # eleven settings and a seed


class Feature:
    """Bits for what a row uses. The steps that no row of a batch uses are left out of it."""

    DRAW = 1
    TOP_K = 2
    TOP_P = 4
    MIN_P = 8
    TYPICAL_P = 16
    ALLOWED = 32
    BANNED = 64
    BIAS = 128
    PENALTIES = 256
    LOGPROBS = 512


@dataclass(frozen=True, eq=False)
class Gathered:
    """What stays the same from step to step while the same rows draw. `users` are (entry of the batch, row)."""

    draws: Draws | None
    allowed: TokenCells | None
    bias: BiasCells | None
    num_logprobs: IntArray | None
    banned_users: list[tuple[int, int]]
    penalty_users: list[tuple[int, int]]


def sampling_state_bytes(max_rows: int) -> int:
    """What a `SamplingState` of so many rows takes, the rules of single requests aside."""
    return ROW_BYTES * max_rows


class SamplingState:
    """Arrays indexed by row. A row belongs to one sequence from `add` to `remove`.

    Every chosen token is told by `observe` before the next `batch` that holds its row; the tokens of a sequence that
    comes back after preemption are given to `add` as its output.
    """

    def __init__(self, max_rows: int, eos_token_ids: Iterable[int] = ()) -> None:
        self._eos_token_ids = tuple(eos_token_ids)
        self._features = np.zeros(max_rows, dtype=np.int32)
        self._temperature = np.zeros(max_rows, dtype=np.float32)
        self._top_k = np.zeros(max_rows, dtype=np.int32)
        self._top_p = np.ones(max_rows, dtype=np.float32)
        self._min_p = np.zeros(max_rows, dtype=np.float32)
        self._typical_p = np.ones(max_rows, dtype=np.float32)
        self._seeds = np.zeros(max_rows, dtype=np.uint64)
        self._sample_indices = np.zeros(max_rows, dtype=np.int32)
        self._repetition = np.ones(max_rows, dtype=np.float32)
        self._presence = np.zeros(max_rows, dtype=np.float32)
        self._frequency = np.zeros(max_rows, dtype=np.float32)
        self._num_logprobs = np.full(max_rows, -1, dtype=np.int32)
        self._rules: dict[int, TokenRules] = {}
        self._histories: dict[int, TokenHistory] = {}
        self._num_special = 0  # rows that use any feature
        self._gathered: Gathered | None = None
        self._gathered_rows = b""
        self._plain = SamplingBatch(0)

    @property
    def num_bytes(self) -> int:
        return sum(value.nbytes for value in vars(self).values() if isinstance(value, np.ndarray))

    def add(
        self,
        row: int,
        params: SamplingParams,
        seed: int,
        sample_index: int = 0,
        prompt_token_ids: Sequence[int] = (),
        output_token_ids: Sequence[int] = (),
    ) -> None:
        if row in self._rules:
            raise ValueError(f"row {row} is in use")
        rules = token_rules(params, self._eos_token_ids, len(prompt_token_ids))
        features = features_of(params, rules)
        self._rules[row] = rules
        self._features[row] = features
        self._num_special += features != 0
        self._gathered = None
        self._temperature[row] = 0.0 if params.is_greedy else params.temperature
        self._top_k[row] = params.top_k
        self._top_p[row] = params.top_p
        self._min_p[row] = params.min_p
        self._typical_p[row] = params.typical_p
        self._seeds[row] = seed & SEED_MASK
        self._sample_indices[row] = sample_index
        self._repetition[row] = params.repetition_penalty
        self._presence[row] = params.presence_penalty
        self._frequency[row] = params.frequency_penalty
        self._num_logprobs[row] = -1 if params.logprobs is None else params.logprobs
        if features & Feature.PENALTIES:
            self._histories[row] = TokenHistory(prompt_token_ids, output_token_ids)

    def remove(self, row: int) -> None:
        del self._rules[row]
        self._histories.pop(row, None)
        self._num_special -= int(self._features[row] != 0)
        self._features[row] = 0
        self._gathered = None

    def observe(self, rows: npt.NDArray[Any], token_ids: IntArray) -> None:
        """The token that each of the rows drew."""
        if not self._histories:
            return
        for row, token_id in zip(rows.tolist(), token_ids.tolist(), strict=True):
            history = self._histories.get(row)
            if history is not None:
                history.observe(token_id)

    def batch(self, rows: npt.NDArray[Any], positions: npt.NDArray[Any]) -> SamplingBatch:
        """The step for logits whose row i belongs to rows[i] and foretells the token at positions[i]."""
        if not self._num_special:
            return self._greedy(len(rows))
        name = rows.tobytes()
        if self._gathered is None or name != self._gathered_rows:
            self._gathered, self._gathered_rows = self._gather(rows), name
        same = self._gathered
        return SamplingBatch(
            num_rows=len(rows),
            draws=_at(same.draws, positions) if same.draws is not None else None,
            allowed=same.allowed,
            banned=self._banned(same.banned_users, positions) if same.banned_users else None,
            bias=same.bias,
            penalties=self._penalties(same.penalty_users, rows) if same.penalty_users else None,
            num_logprobs=same.num_logprobs,
        )

    def _greedy(self, num_rows: int) -> SamplingBatch:
        """Rows that ask for nothing but their best tokens; the same record as long as there are as many of them."""
        if self._plain.num_rows != num_rows:
            self._plain = SamplingBatch(num_rows)
        return self._plain

    def _gather(self, rows: npt.NDArray[Any]) -> Gathered:
        features = self._features[rows]
        used = int(np.bitwise_or.reduce(features, initial=0))

        def users(feature: int) -> list[tuple[int, int]]:
            return [(index, int(rows[index])) for index in np.flatnonzero(features & feature).tolist()]

        return Gathered(
            draws=self._draws(rows, used) if used & Feature.DRAW else None,
            allowed=self._allowed(users(Feature.ALLOWED)) if used & Feature.ALLOWED else None,
            bias=self._bias(users(Feature.BIAS)) if used & Feature.BIAS else None,
            num_logprobs=self._num_logprobs[rows] if used & Feature.LOGPROBS else None,
            banned_users=users(Feature.BANNED),
            penalty_users=users(Feature.PENALTIES),
        )

    def _draws(self, rows: npt.NDArray[Any], used: int) -> Draws:
        return Draws(
            temperature=self._temperature[rows],
            seeds=self._seeds[rows],
            sample_indices=self._sample_indices[rows],
            positions=np.zeros(0, np.int32),  # a step brings them
            top_k=self._top_k[rows] if used & Feature.TOP_K else None,
            top_p=self._top_p[rows] if used & Feature.TOP_P else None,
            min_p=self._min_p[rows] if used & Feature.MIN_P else None,
            typical_p=self._typical_p[rows] if used & Feature.TYPICAL_P else None,
        )

    def _allowed(self, users: list[tuple[int, int]]) -> TokenCells:
        lists = [self._rules[row].allowed for _, row in users]
        return TokenCells(_cell_rows(users, lists), np.concatenate(lists))

    def _banned(self, users: list[tuple[int, int]], positions: npt.NDArray[Any]) -> TokenCells | None:
        lists = [self._rules[row].banned_at(int(positions[index])) for index, row in users]
        token_ids = np.concatenate(lists)
        return TokenCells(_cell_rows(users, lists), token_ids) if len(token_ids) else None

    def _bias(self, users: list[tuple[int, int]]) -> BiasCells:
        lists = [self._rules[row].bias_token_ids for _, row in users]
        values = np.concatenate([self._rules[row].bias_values for _, row in users])
        return BiasCells(_cell_rows(users, lists), np.concatenate(lists), values)

    def _penalties(self, users: list[tuple[int, int]], rows: npt.NDArray[Any]) -> Penalties:
        histories = [self._histories[row] for _, row in users]
        lists = [history.token_ids for history in histories]
        return Penalties(
            rows=_cell_rows(users, lists),
            token_ids=np.concatenate(lists),
            output_counts=np.concatenate([history.output_counts for history in histories]),
            repetition=self._repetition[rows],
            presence=self._presence[rows],
            frequency=self._frequency[rows],
        )


def _at(draws: Draws, positions: npt.NDArray[Any]) -> Draws:
    return Draws(
        draws.temperature,
        draws.seeds,
        draws.sample_indices,
        np.asarray(positions, np.int32),
        draws.top_k,
        draws.top_p,
        draws.min_p,
        draws.typical_p,
    )


def features_of(params: SamplingParams, rules: TokenRules) -> int:
    """Bits of `Feature`; 0 for whoever wants the best token and nothing else."""
    drawn = not params.is_greedy
    penalised = params.repetition_penalty != 1.0 or params.presence_penalty != 0.0 or params.frequency_penalty != 0.0
    uses = {
        Feature.DRAW: drawn,
        Feature.TOP_K: drawn and params.top_k > 0,
        Feature.TOP_P: drawn and params.top_p < 1.0,
        Feature.MIN_P: drawn and params.min_p > 0.0,
        Feature.TYPICAL_P: drawn and params.typical_p < 1.0,
        Feature.ALLOWED: len(rules.allowed) > 0,
        Feature.BANNED: len(rules.banned_early) > 0,
        Feature.BIAS: len(rules.bias_token_ids) > 0,
        Feature.PENALTIES: penalised,
        Feature.LOGPROBS: params.logprobs is not None,
    }
    return sum(feature for feature, is_used in uses.items() if is_used)


def _cell_rows(users: list[tuple[int, int]], lists: list[IntArray]) -> IntArray:
    """The row of the logits that each token of the joined lists belongs to."""
    indices = np.array([index for index, _ in users], dtype=np.int32)
    return np.repeat(indices, [len(token_ids) for token_ids in lists])
