"""Watches a forward pass go by and writes it down: the operator table on symbols instead of numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np

from pagoda.kernels.base import KVPages, RaggedBatch, RopeFrequencies, RopeTable, Weight
from pagoda.kernels.cpu.weights import PackedWeights, integer_row_bytes
from pagoda.kernels.symbol import Symbol

LANES = 16


class Operation(IntEnum):
    EMBED = 0
    LINEAR = 1
    RMS_NORM = 2
    ADD = 3
    SCALE = 4
    GATED_SILU = 5
    GATED_GELU = 6
    ROPE_TABLE = 7
    ROPE = 8
    WRITE = 9
    ATTENTION = 10
    TAKE_ROWS = 11
    SOFT_CAP = 12
    QUANTIZE = 13
    LINEAR_INTEGER = 14


# Done row by row: a thread needs nothing but the same rows of what came before, if that was done row by row as well.
ROW_BY_ROW = frozenset(
    {
        *(Operation.EMBED, Operation.RMS_NORM, Operation.ADD, Operation.SCALE, Operation.GATED_SILU),
        *(Operation.GATED_GELU, Operation.ROPE_TABLE, Operation.ROPE, Operation.SOFT_CAP, Operation.QUANTIZE),
        Operation.WRITE,
    }
)
# Rows of logits are too long to be left to one thread.
SHARED_IN_LOGITS = frozenset({Operation.ADD, Operation.SCALE, Operation.SOFT_CAP, Operation.RMS_NORM})
LONG_ROW = 16384


@dataclass(frozen=True, eq=False)
class Recorded:
    """One instruction. `reads` and `writes` name values; pages and rope tables count as values of their own."""

    operation: Operation
    arguments: tuple[int | Symbol, ...]
    factors: tuple[float, ...] = ()
    reads: tuple[Any, ...] = ()
    writes: tuple[Any, ...] = ()

    @property
    def is_of_logits(self) -> bool:
        return any(isinstance(written, Symbol) and written.is_rows for written in self.writes)

    @property
    def is_row_by_row(self) -> bool:
        return self.operation in ROW_BY_ROW and not self.is_of_logits

    @property
    def is_small(self) -> bool:
        """With a single token every thread does it for itself."""
        if self.operation is Operation.WRITE or (self.operation in SHARED_IN_LOGITS and self._is_long):
            return False
        return self.operation in ROW_BY_ROW or self.operation is Operation.TAKE_ROWS

    @property
    def _is_long(self) -> bool:
        return any(isinstance(one, Symbol) and one.is_rows and one.width > LONG_ROW for one in self.writes)


@dataclass(eq=False)
class Recorder:
    """An operator table that computes nothing. What it was asked for stands in `instructions`, in order."""

    weights: PackedWeights
    layers: list[KVPages]
    computes_in_integers: bool = False
    instructions: list[Recorded] = field(default_factory=list)
    values: list[Symbol] = field(default_factory=list)
    vectors: list[Any] = field(default_factory=list)
    ropes: list[RopeFrequencies] = field(default_factory=list)
    quantized: dict[int, Symbol] = field(default_factory=dict)

    def batch(self) -> RaggedBatch:
        """Stands for the batch of any step."""
        nothing = np.zeros(0, np.int32)
        return RaggedBatch(nothing, nothing, nothing, nothing, ())

    def prepare(self, weight: Weight) -> None:
        raise NotImplementedError("weights are packed before a forward pass is recorded")

    def embed(self, weight: Weight, _token_ids: Any) -> Symbol:
        out = self._new(weight.shape[1])
        self._add(Operation.EMBED, (self.weights.index(weight), out), writes=(out,))
        return out

    def linear(self, x: Symbol, weight: Weight, bias: Weight | None = None) -> Symbol:
        out = self._new(weight.shape[0], x.is_rows)
        offset = -1 if bias is None else self._vector(bias)
        index = self.weights.index(weight)
        operation = Operation.LINEAR
        if self.computes_in_integers and self.weights.is_quantized(index):
            operation, x = Operation.LINEAR_INTEGER, self._quantize(x)
        self._add(operation, (x, index, out, offset), reads=(x,), writes=(out,))
        return out

    def rms_norm(self, x: Symbol, weight: Weight, epsilon: float, offset: float = 0.0) -> Symbol:
        width = weight.shape[-1]
        assert width % LANES == 0, f"a norm over {width} elements"
        out = self._like(x)
        arguments = (x, self._vector(weight), out, width)
        self._add(Operation.RMS_NORM, arguments, (epsilon, offset), reads=(x,), writes=(out,))
        return out

    def add(self, x: Symbol, y: Symbol) -> Symbol:
        return self._binary(Operation.ADD, x, y)

    def gated_silu(self, gate: Symbol, up: Symbol) -> Symbol:
        return self._binary(Operation.GATED_SILU, gate, up)

    def gated_gelu(self, gate: Symbol, up: Symbol) -> Symbol:
        return self._binary(Operation.GATED_GELU, gate, up)

    def scale(self, x: Symbol, factor: float) -> Symbol:
        return self._unary(Operation.SCALE, x, factor)

    def soft_cap(self, x: Symbol, cap: float) -> Symbol:
        return self._unary(Operation.SOFT_CAP, x, cap)

    def rope_table(self, _positions: Any, frequencies: RopeFrequencies) -> RopeTable:
        number = len(self.ropes)
        self.ropes.append(frequencies)
        self._add(Operation.ROPE_TABLE, (number,), writes=(("rope", number),))
        return RopeTable(number, number, frequencies.interleaved)

    def rope(self, x: Symbol, table: RopeTable) -> Symbol:
        out = self._like(x)
        arguments = (x, out, x.head_width, table.cos)
        self._add(Operation.ROPE, arguments, reads=(x, ("rope", table.cos)), writes=(out,))
        return out

    def take_rows(self, x: Symbol, _indices: Any) -> Symbol:
        out = self._new(x.width, is_rows=True)
        self._add(Operation.TAKE_ROWS, (x, out), reads=(x,), writes=(out,))
        return out

    def write_pages(self, keys: Symbol, values: Symbol, pages: KVPages, _batch: RaggedBatch, group: int) -> None:
        layer = self._layer(pages)
        self._add(Operation.WRITE, (keys, values, layer, group), reads=(keys, values), writes=(("pages", layer),))

    def attention(
        self, queries: Symbol, pages: KVPages, _batch: RaggedBatch, group: int, scale: float, window: int = 0
    ) -> Symbol:
        layer = self._layer(pages)
        assert queries.head_width % LANES == 0, f"heads of {queries.head_width} elements"
        out = self._like(queries)
        arguments = (queries, out, layer, group, queries.width // queries.head_width, window)
        # Threads leave each other parts of the work in one place: no two attentions may be under way at once.
        writes = (out, ("parts",))
        self._add(Operation.ATTENTION, arguments, (scale,), reads=(queries, ("pages", layer)), writes=writes)
        return out

    def copy_pages(self, pages: KVPages, sources: Any, targets: Any) -> None:
        raise NotImplementedError("not part of a forward pass")

    def sample(self, logits: Any, batch: Any) -> Any:
        raise NotImplementedError("not part of a forward pass")

    def _quantize(self, x: Symbol) -> Symbol:
        """Once for all the products that take it."""
        if x.value not in self.quantized:
            out = self.quantized[x.value] = self._new(integer_row_bytes(x.width) // 4, x.is_rows)
            self._add(Operation.QUANTIZE, (x, out), reads=(x,), writes=(out,))
        return self.quantized[x.value]

    def _binary(self, operation: Operation, x: Symbol, y: Symbol) -> Symbol:
        out = self._like(x)
        self._add(operation, (x, y, out), reads=(x, y), writes=(out,))
        return out

    def _unary(self, operation: Operation, x: Symbol, factor: float) -> Symbol:
        out = self._like(x)
        self._add(operation, (x, out), (factor,), reads=(x,), writes=(out,))
        return out

    def _new(self, width: int, is_rows: bool = False) -> Symbol:
        symbol = Symbol(len(self.values), width, is_rows)
        self.values.append(symbol)
        return symbol

    def _like(self, x: Symbol) -> Symbol:
        symbol = Symbol(len(self.values), x.width, x.is_rows, x.head_width)
        self.values.append(symbol)
        return symbol

    def _vector(self, weight: Weight) -> int:
        self.vectors.append(self.weights.vector(weight))
        return len(self.vectors) - 1

    def _layer(self, pages: KVPages) -> int:
        return next(index for index, layer in enumerate(self.layers) if layer is pages)

    def _add(
        self,
        operation: Operation,
        arguments: tuple[int | Symbol, ...],
        factors: tuple[float, ...] = (),
        reads: tuple[Any, ...] = (),
        writes: tuple[Any, ...] = (),
    ) -> None:
        self.instructions.append(Recorded(operation, arguments, factors, reads, writes))
