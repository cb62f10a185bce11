"""The decoder that all families share: a stack of attention and MLP with norms around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pagoda.core.cache import CacheGroup
from pagoda.kernels.base import Array, KVPages, Operators, RaggedBatch, RopeFrequencies, RopeTable, Weight
from pagoda.models.config import ModelConfig
from pagoda.models.layers.attention import Attention
from pagoda.models.layers.linear import Linear
from pagoda.models.layers.mlp import GatedMLP
from pagoda.models.layers.norm import RMSNorm


@dataclass(frozen=True, eq=False)
class DecoderLayer:
    attention_norm: RMSNorm
    attention: Attention
    post_attention_norm: RMSNorm | None
    mlp_norm: RMSNorm
    mlp: GatedMLP
    post_mlp_norm: RMSNorm | None

    def __call__(
        self,
        operators: Operators,
        x: Array,
        batch: RaggedBatch,
        pages: KVPages,
        rope_table: RopeTable,
        rows: Array | None = None,
    ) -> Array:
        attended = self.attention(operators, self.attention_norm(operators, x), batch, pages, rope_table, rows)
        if rows is not None:
            x = operators.take_rows(x, rows)
        if self.post_attention_norm is not None:
            attended = self.post_attention_norm(operators, attended)
        x = operators.add(x, attended)
        changed = self.mlp(operators, self.mlp_norm(operators, x))
        if self.post_mlp_norm is not None:
            changed = self.post_mlp_norm(operators, changed)
        return operators.add(x, changed)


@dataclass(frozen=True, eq=False)
class DecoderModel:
    """`ropes` are the distinct rotations of the model; layer i turns by ropes[layer_ropes[i]]."""

    config: ModelConfig
    groups: tuple[CacheGroup, ...]
    all_weights: tuple[Weight, ...]
    embedding: Weight
    layers: tuple[DecoderLayer, ...]
    final_norm: RMSNorm
    head: Linear
    ropes: tuple[RopeFrequencies, ...]
    layer_ropes: tuple[int, ...]

    def cache_groups(self) -> tuple[CacheGroup, ...]:
        return self.groups

    def weights(self) -> tuple[Weight, ...]:
        return self.all_weights

    def forward(self, operators: Operators, batch: RaggedBatch, caches: Sequence[KVPages], rows: Array) -> Array:
        tables = [operators.rope_table(batch.positions, rope) for rope in self.ropes]
        x = operators.embed(self.embedding, batch.token_ids)
        if self.config.embedding_scale != 1.0:
            x = operators.scale(x, self.config.embedding_scale)
        for layer, pages, rope_index in zip(self.layers, caches, self.layer_ropes, strict=True):
            asked = rows if layer is self.layers[-1] else None
            x = layer(operators, x, batch, pages, tables[rope_index], asked)
        return self.final_norm(operators, x)

    def logits(self, operators: Operators, hidden_rows: Array) -> Array:
        logits = self.head(operators, hidden_rows)
        if self.config.logit_soft_cap:
            logits = operators.soft_cap(logits, self.config.logit_soft_cap)
        return logits


def group_layers(config: ModelConfig) -> tuple[CacheGroup, ...]:
    """Layers that see everything form one group, those with the same window another."""
    groups = []
    for window in sorted(set(config.windows)):
        layers = tuple(index for index, own in enumerate(config.windows) if own == window)
        groups.append(CacheGroup("window" if window else "full", layers, config.num_kv_heads, config.head_dim, window))
    return tuple(groups)
