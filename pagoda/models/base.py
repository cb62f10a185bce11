"""What the engine sees of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pagoda.core.cache import CacheGroup
from pagoda.kernels.base import Array, KVPages, Operators, RaggedBatch, Weight
from pagoda.models.config import ModelConfig


class Model(Protocol):
    """A forward pass over the operator table. It holds weights and no state of any request."""

    @property
    def config(self) -> ModelConfig: ...

    def cache_groups(self) -> tuple[CacheGroup, ...]:
        """Which layers share a page table. Group g reads batch.page_tables[g]."""
        ...

    def weights(self) -> tuple[Weight, ...]:
        """Each weight once, in the order of use."""
        ...

    def forward(self, operators: Operators, batch: RaggedBatch, caches: Sequence[KVPages], rows: Array) -> Array:
        """The hidden states of the step's tokens at `rows` after the last norm, [L, D]; caches[i] belongs to layer i.

        Behind the last attention nothing is computed for the others.
        """
        ...

    def logits(self, operators: Operators, hidden_rows: Array) -> Array:
        """[L, D] -> [L, V]"""
        ...
