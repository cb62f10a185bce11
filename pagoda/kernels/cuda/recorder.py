"""Watches a forward pass go by and writes it down, call by call: the operator table on symbols."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pagoda.kernels.base import KVPages, RaggedBatch, RopeFrequencies, RopeTable, Weight
from pagoda.kernels.symbol import Symbol


@dataclass(frozen=True, eq=False, kw_only=True)
class Call:
    """One operator. `reads` are what it computes from, `out` what it makes."""

    reads: tuple[Symbol, ...] = ()
    out: Symbol | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Embed(Call):
    weight: Weight


@dataclass(frozen=True, eq=False, kw_only=True)
class Linear(Call):
    weight: Weight
    bias: Weight | None
    is_head: bool = False
    """Makes logits."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Norm(Call):
    weight: Weight
    epsilon: float
    offset: float


@dataclass(frozen=True, eq=False, kw_only=True)
class Add(Call):
    pass


@dataclass(frozen=True, eq=False, kw_only=True)
class Scale(Call):
    factor: float


@dataclass(frozen=True, eq=False, kw_only=True)
class SoftCap(Call):
    cap: float


@dataclass(frozen=True, eq=False, kw_only=True)
class Gated(Call):
    is_gelu: bool


@dataclass(frozen=True, eq=False, kw_only=True)
class Rope(Call):
    table: int


@dataclass(frozen=True, eq=False, kw_only=True)
class WritePages(Call):
    layer: int
    group: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Attend(Call):
    layer: int
    group: int
    scale: float
    window: int


@dataclass(frozen=True, eq=False, kw_only=True)
class TakeRows(Call):
    pass


@dataclass(eq=False)
class Recorder:
    """An operator table that computes nothing. What it was asked for stands in `calls`, in order."""

    layers: list[KVPages]
    calls: list[Call] = field(default_factory=list)
    ropes: list[RopeFrequencies] = field(default_factory=list)
    num_values: int = 0
    is_head: bool = False
    """What is asked for from now on makes logits."""

    def batch(self) -> RaggedBatch:
        """Stands for the batch of any step."""
        nothing = np.zeros(0, np.int32)
        return RaggedBatch(nothing, nothing, nothing, nothing, ())

    def prepare(self, weight: Weight) -> None:
        raise NotImplementedError("weights go to the device when the program is made")

    def embed(self, weight: Weight, _token_ids: Any) -> Symbol:
        return self._add(Embed(out=self._new(weight.shape[1]), weight=weight))

    def linear(self, x: Symbol, weight: Weight, bias: Weight | None = None) -> Symbol:
        out = self._new(weight.shape[0], x.is_rows)
        return self._add(Linear(reads=(x,), out=out, weight=weight, bias=bias, is_head=self.is_head))

    def rms_norm(self, x: Symbol, weight: Weight, epsilon: float, offset: float = 0.0) -> Symbol:
        return self._add(Norm(reads=(x,), out=self._like(x), weight=weight, epsilon=epsilon, offset=offset))

    def add(self, x: Symbol, y: Symbol) -> Symbol:
        return self._add(Add(reads=(x, y), out=self._like(x)))

    def scale(self, x: Symbol, factor: float) -> Symbol:
        return self._add(Scale(reads=(x,), out=self._like(x), factor=factor))

    def gated_silu(self, gate: Symbol, up: Symbol) -> Symbol:
        return self._add(Gated(reads=(gate, up), out=self._like(gate), is_gelu=False))

    def gated_gelu(self, gate: Symbol, up: Symbol) -> Symbol:
        return self._add(Gated(reads=(gate, up), out=self._like(gate), is_gelu=True))

    def rope_table(self, _positions: Any, frequencies: RopeFrequencies) -> RopeTable:
        self.ropes.append(frequencies)
        return RopeTable(len(self.ropes) - 1, None, frequencies.interleaved)

    def rope(self, x: Symbol, table: RopeTable) -> Symbol:
        return self._add(Rope(reads=(x,), out=self._like(x), table=table.cos))

    def soft_cap(self, x: Symbol, cap: float) -> Symbol:
        return self._add(SoftCap(reads=(x,), out=self._like(x), cap=cap))

    def take_rows(self, x: Symbol, _indices: Any) -> Symbol:
        return self._add(TakeRows(reads=(x,), out=self._new(x.width, is_rows=True)))

    def write_pages(self, keys: Symbol, values: Symbol, pages: KVPages, _batch: RaggedBatch, group: int) -> None:
        self.calls.append(WritePages(reads=(keys, values), layer=self._layer(pages), group=group))

    def attention(
        self, queries: Symbol, pages: KVPages, _batch: RaggedBatch, group: int, scale: float, window: int = 0
    ) -> Symbol:
        layer = self._layer(pages)
        out = self._like(queries)
        return self._add(Attend(reads=(queries,), out=out, layer=layer, group=group, scale=scale, window=window))

    def copy_pages(self, pages: KVPages, sources: Any, targets: Any) -> None:
        raise NotImplementedError("not part of a forward pass")

    def sample(self, logits: Any, batch: Any) -> Any:
        raise NotImplementedError("not part of a forward pass")

    def _new(self, width: int, is_rows: bool = False) -> Symbol:
        self.num_values += 1
        return Symbol(self.num_values - 1, width, is_rows)

    def _like(self, x: Symbol) -> Symbol:
        self.num_values += 1
        return Symbol(self.num_values - 1, x.width, x.is_rows, x.head_width)

    def _layer(self, pages: KVPages) -> int:
        return next(index for index, layer in enumerate(self.layers) if layer is pages)

    def _add(self, call: Call) -> Symbol:
        self.calls.append(call)
        assert call.out is not None
        return call.out
