"""Attention over the pages of one layer: grouped heads, optional norms on queries and keys, optional window."""

from __future__ import annotations

from dataclasses import dataclass

from pagoda.kernels.base import Array, KVPages, Operators, RaggedBatch, RopeTable
from pagoda.models.layers.linear import Linear
from pagoda.models.layers.norm import RMSNorm


@dataclass(frozen=True, eq=False)
class Attention:
    query: Linear
    key: Linear
    value: Linear
    output: Linear
    query_norm: RMSNorm | None
    key_norm: RMSNorm | None
    head_dim: int
    scale: float
    window: int
    group: int

    def __call__(
        self,
        operators: Operators,
        x: Array,
        batch: RaggedBatch,
        pages: KVPages,
        rope_table: RopeTable,
        rows: Array | None = None,
    ) -> Array:
        """[T, D] -> [T, D], or what it is for some rows of T."""
        queries = self.heads(self.query(operators, x))
        keys = self.heads(self.key(operators, x))
        values = self.heads(self.value(operators, x))
        if self.query_norm is not None:
            queries = self.query_norm(operators, queries)
        if self.key_norm is not None:
            keys = self.key_norm(operators, keys)
        queries = operators.rope(queries, rope_table)
        keys = operators.rope(keys, rope_table)
        operators.write_pages(keys, values, pages, batch, self.group)
        mixed = operators.attention(queries, pages, batch, self.group, self.scale, self.window)
        mixed = mixed.reshape(len(x), -1)
        return self.output(operators, mixed if rows is None else operators.take_rows(mixed, rows))

    def heads(self, x: Array) -> Array:
        return x.reshape(len(x), -1, self.head_dim)
