"""`sample` and `token_logprobs` by the native library, with the tokens and values of their NumPy twins, bit for bit.

The library computes in double precision and knows how far two correct results may lie apart. Where that could matter
(the mass of top_p, two scores of a draw, a value between two floats) it leaves the row to the twin; chance brings this
about less than once in a million draws.
"""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt

from pagoda.kernels.cpu import library as native
from pagoda.kernels.cpu.memory import address
from pagoda.kernels.reference import sampling as twin
from pagoda.kernels.sampling import (
    BiasCells,
    Draws,
    FloatArray,
    IntArray,
    Penalties,
    SampledTokens,
    SamplingBatch,
    TokenCells,
    TokenLogprobs,
)

BROKEN = 1  # as `Outcome` in native/sampling.h


class NativeSampler:
    """Rows are shared over the threads. One thread at a time may use it."""

    def __init__(self, num_threads: int, instruction_set: str) -> None:
        self._num_threads = num_threads
        self._instruction_set = instruction_set.encode()
        self._library = native.load_library()
        self._record = native.Sampling()
        self._logits: FloatArray | None = None
        self._batch: SamplingBatch | None = None
        self._kept: list[Any] = []
        self._reserve(1)

    def sample(self, logits: FloatArray, batch: SamplingBatch) -> SampledTokens:
        """One token for each row of [rows, vocabulary] logits, which stay as they are."""
        if logits.shape[0] != batch.num_rows:
            raise ValueError(f"{logits.shape[0]} rows of logits for a batch of {batch.num_rows}")
        if logits is not self._logits or batch is not self._batch:
            self._take(logits, batch)
        self._library.pagoda_sample(self._record, self._instruction_set, self._num_threads)
        token_ids = self._token_ids[: len(logits)].copy()
        outcomes = self._outcomes[: len(logits)]
        is_broken = None
        if any(outcomes.tolist()):
            left = outcomes.nonzero()[0]
            token_ids[left] = twin.sample(logits[left], rows_of(batch, left)).token_ids
            is_broken = outcomes == BROKEN if BROKEN in outcomes else None
        logprobs = None if batch.num_logprobs is None else self._logprobs(logits, token_ids, batch.num_logprobs)
        return SampledTokens(token_ids, logprobs, is_broken)

    def _take(self, logits: FloatArray, batch: SamplingBatch) -> None:
        """Write a step into the library's record; the same two objects are then taken with the numbers they hold."""
        if len(logits) > len(self._outcomes):
            self._reserve(2 * len(logits))
        floats = _rows_of_floats(logits)
        self._kept = [floats, *_fill(self._record, floats, batch)]
        self._logits, self._batch = (logits, batch) if floats is logits else (None, None)

    def _reserve(self, num_rows: int) -> None:
        self._token_ids, self._outcomes = np.zeros(num_rows, np.int32), np.zeros(num_rows, np.int32)
        self._record.token_ids, self._record.outcomes = address(self._token_ids), address(self._outcomes)

    def _logprobs(self, logits: FloatArray, token_ids: IntArray, num_logprobs: IntArray) -> TokenLogprobs:
        rows = np.flatnonzero(num_logprobs >= 0)
        return self.token_logprobs(logits, token_ids[rows], num_logprobs[rows], rows)

    def token_logprobs(
        self,
        logits: FloatArray,
        token_ids: npt.NDArray[Any],
        num_top: npt.NDArray[Any],
        rows: npt.NDArray[Any] | None = None,
    ) -> TokenLogprobs:
        logits = _rows_of_floats(logits)
        rows = np.arange(len(token_ids)) if rows is None else np.array(rows, np.int64)
        if len(rows) and not 0 <= rows.min() <= rows.max() < len(logits):
            raise IndexError(f"a row outside the {len(logits)} rows of logits")
        scored = np.array(token_ids, np.int32)
        counts = np.array(np.minimum(num_top, logits.shape[1]), np.int32)
        width = int(counts.max(initial=0))
        found = TokenLogprobs(
            rows=rows.astype(np.int32),
            chosen=np.empty(len(rows), np.float32),
            ranks=np.empty(len(rows), np.int32),
            num_top=counts,
            top_token_ids=np.full((len(rows), width), -1, np.int32),
            top_values=np.full((len(rows), width), -np.inf, np.float32),
        )
        outcomes = np.zeros(len(rows), np.int32)
        arrays = (rows, scored, counts, found.chosen, found.ranks, found.top_token_ids, found.top_values, outcomes)
        record = native.Scoring(
            _address(logits), _stride(logits), logits.shape[1], len(rows), width, *map(address, arrays)
        )
        self._library.pagoda_score(record, self._instruction_set, self._num_threads)
        for entry in outcomes.nonzero()[0].tolist():
            _replace(found, entry, twin.token_logprobs(logits[rows[entry]][None], scored[[entry]], counts[[entry]]))
        return found


def rows_of(batch: SamplingBatch, rows: npt.NDArray[np.intp]) -> SamplingBatch:
    """What a batch asks for some of its rows."""
    return SamplingBatch(
        num_rows=len(rows),
        draws=None if batch.draws is None else Draws(**_taken(batch.draws, rows)),
        allowed=None if batch.allowed is None else TokenCells(**_cells_taken(batch.allowed, rows)),
        banned=None if batch.banned is None else TokenCells(**_cells_taken(batch.banned, rows)),
        bias=None if batch.bias is None else BiasCells(**_cells_taken(batch.bias, rows)),
        penalties=None if batch.penalties is None else _penalties_taken(batch.penalties, rows),
        num_logprobs=None,
    )


def _taken(record: Any, rows: npt.NDArray[np.intp]) -> dict[str, Any]:
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    return {name: None if value is None else value[rows] for name, value in values.items()}


def _cells_taken(
    cells: Any, rows: npt.NDArray[np.intp], names: tuple[str, ...] = ("token_ids", "values")
) -> dict[str, Any]:
    is_taken = np.isin(cells.rows, rows)
    new_rows = np.searchsorted(rows, cells.rows[is_taken]).astype(np.int32)
    others = {name: getattr(cells, name)[is_taken] for name in names if hasattr(cells, name)}
    return {"rows": new_rows, **others}


def _penalties_taken(penalties: Penalties, rows: npt.NDArray[np.intp]) -> Penalties:
    cells = _cells_taken(penalties, rows, ("token_ids", "output_counts"))
    strengths = {name: getattr(penalties, name)[rows] for name in ("repetition", "presence", "frequency")}
    return Penalties(**cells, **strengths)


def _fill(record: native.Sampling, logits: FloatArray, batch: SamplingBatch) -> list[Any]:
    """Write a step into the library's record; the arrays that must outlive the call."""
    record.logits, record.num_rows = _address(logits), len(logits)
    record.stride, record.vocab_size = _stride(logits), logits.shape[1]
    kept: list[Any] = []
    record.temperature = None
    if batch.draws is not None:
        _put_draws(record, batch.draws, kept)
    _put_cells(record.allowed, batch.allowed, kept)
    _put_cells(record.banned, batch.banned, kept)
    _put_cells(record.bias, batch.bias, kept)
    _put_cells(record.penalties, batch.penalties, kept)
    if batch.penalties is not None:
        for name in ("repetition", "presence", "frequency"):
            setattr(record, name, _pointer(getattr(batch.penalties, name), np.float32, kept))
    return kept


def _put_draws(record: native.Sampling, draws: Draws, kept: list[Any]) -> None:
    record.temperature = _pointer(draws.temperature, np.float32, kept)
    record.seeds = _pointer(draws.seeds, np.uint64, kept)
    record.sample_indices = _pointer(draws.sample_indices, np.int32, kept)
    record.positions = _pointer(draws.positions, np.int32, kept)
    record.top_k = None if draws.top_k is None else _pointer(draws.top_k, np.int32, kept)
    record.top_p = None if draws.top_p is None else _pointer(draws.top_p, np.float32, kept)
    record.typical_p = None if draws.typical_p is None else _pointer(draws.typical_p, np.float32, kept)
    record.log_min_p = None
    if draws.min_p is not None:
        logs = [math.log(value) if value else -math.inf for value in draws.min_p.tolist()]
        record.log_min_p = _pointer(np.array(logs), np.float64, kept)


def _put_cells(record: native.TokenCells, cells: TokenCells | BiasCells | Penalties | None, kept: list[Any]) -> None:
    record.count = 0
    if cells is None:
        return
    record.rows = _pointer(cells.rows, np.int32, kept)
    record.token_ids = _pointer(cells.token_ids, np.int32, kept)
    record.count = len(cells.rows)
    if isinstance(cells, BiasCells):
        record.values = _pointer(cells.values, np.float32, kept)
    if isinstance(cells, Penalties):
        record.counts = _pointer(cells.output_counts, np.int32, kept)


def _pointer(array: npt.NDArray[Any], dtype: Any, kept: list[Any]) -> int:
    values = np.ascontiguousarray(array, dtype)
    kept.append(values)
    return address(values)


def _replace(found: TokenLogprobs, entry: int, other: TokenLogprobs) -> None:
    count = int(other.num_top[0])
    found.chosen[entry], found.ranks[entry] = other.chosen[0], other.ranks[0]
    found.top_token_ids[entry, :count] = other.top_token_ids[0]
    found.top_values[entry, :count] = other.top_values[0]


def _rows_of_floats(logits: FloatArray) -> FloatArray:
    """Rows may lie apart, as a program leaves them; the numbers of each lie side by side."""
    whole = logits.dtype == np.float32 and logits.strides[1] == 4 and logits.strides[0] % 4 == 0
    return logits if whole else np.ascontiguousarray(logits, np.float32)


def _stride(logits: FloatArray) -> int:
    return logits.strides[0] // 4


def _address(logits: FloatArray) -> int:
    return address(logits) if logits.flags.c_contiguous else logits.ctypes.data
