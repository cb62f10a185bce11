"""The operator table: what a model may ask of a device, and the records the operators take.

A forward pass is a plain function over this table. `kernels/reference` holds the NumPy twin of every operator;
a device replaces the table, never a model. Arrays are whatever the device computes with (NumPy arrays on a CPU).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from pagoda.core.cache import KVCacheType
from pagoda.kernels.sampling import SampledTokens, SamplingBatch

Array = Any
IntArray = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float32]
# What products with quantized weights are made of: single precision, or bytes.
Compute = Literal["f32", "int8"]
# What the multipliers of a device take in.
Arithmetic = Literal["f32", "bf16", "int8", "fp8"]
FLOAT_FORMATS = frozenset({"F64", "F32", "F16", "BF16"})  # weights that nothing was quantized in
RANDOM_FORMAT = "RANDOM"  # a weight that is only a shape: who computes with it makes up the numbers
RANDOM_DEVIATION = 0.02


class Weight(Protocol):
    """A matrix or vector that knows its own format, so that quantization never shows in a model file."""

    @property
    def format(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def raw(self) -> npt.NDArray[np.uint8]: ...

    def to_float32(self) -> FloatArray: ...

    def rows_to_float32(self, indices: npt.NDArray[Any]) -> FloatArray: ...


class StoredWeight(NamedTuple):
    """A weight where it is computed with."""

    num_bytes: int
    arithmetic: Arithmetic
    """Of products with it."""


NUMPY_TYPES: dict[KVCacheType, type[np.generic]] = {"f32": np.float32, "f16": np.float16, "int8": np.int8}


@dataclass(frozen=True, eq=False)
class KVPages:
    """One layer's keys and values, in pages: two arrays of [num_pages, page_size, num_kv_heads, head_dim].

    Bytes come with scales of [num_pages, page_size, num_kv_heads]. A device may order all axes but the first anew.
    """

    keys: Array
    values: Array
    key_scales: Array | None = None
    value_scales: Array | None = None


@dataclass(frozen=True, eq=False)
class RaggedBatch:
    """The tokens of one step, row after row with nothing between them.

    Row r owns the tokens [row_starts[r], row_starts[r + 1]); the last of them is number context_lens[r] - 1 of its row.
    `positions` feed rope alone; where a token's keys lie and what it sees follows from row_starts and context_lens.
    page_tables[g][r, i] is the page of cache group g that holds the tokens [i * page_size, (i + 1) * page_size)
    of row r, or -1 where the window has passed.
    """

    token_ids: IntArray
    positions: IntArray
    row_starts: IntArray
    context_lens: IntArray
    page_tables: tuple[IntArray, ...]


@dataclass(frozen=True, eq=False)
class RopeFrequencies:
    """How fast each pair of a head turns: [rotary_dim / 2] radians a position, float32.

    `interleaved` pairs neighbours (GGUF llama files); otherwise the first half of the head pairs with the second.
    `magnitude` scales cosines and sines alike (YaRN).
    """

    inverse_frequencies: Array
    interleaved: bool = False
    magnitude: float = 1.0


@dataclass(frozen=True, eq=False)
class RopeTable:
    """Cosines and sines of the tokens of one step, [T, rotary_dim / 2]; made once a step and used by every layer."""

    cos: Array
    sin: Array
    interleaved: bool


class Operators(Protocol):
    """Shapes: T tokens of the step, D model width, H query heads, K key/value heads, E head width."""

    def prepare(self, weight: Weight) -> None:
        """Bring a weight into the form this device computes with, so that the first step does not pay for it."""
        ...

    def embed(self, weight: Weight, token_ids: Array) -> Array:
        """[T] -> [T, D]"""
        ...

    def linear(self, x: Array, weight: Weight, bias: Weight | None = None) -> Array:
        """[T, in] by a weight of [out, in] -> [T, out]"""
        ...

    def rms_norm(self, x: Array, weight: Weight, epsilon: float, offset: float = 0.0) -> Array:
        """Over the last axis; the weight counts as weight + offset."""
        ...

    def add(self, x: Array, y: Array) -> Array: ...

    def scale(self, x: Array, factor: float) -> Array: ...

    def gated_silu(self, gate: Array, up: Array) -> Array: ...

    def gated_gelu(self, gate: Array, up: Array) -> Array:
        """GELU in its tanh form."""
        ...

    def rope_table(self, positions: Array, frequencies: RopeFrequencies) -> RopeTable:
        """The turns of [T] positions, the angle rounded to float32 as the models saw it in training."""
        ...

    def rope(self, x: Array, table: RopeTable) -> Array:
        """[T, heads, E] -> the same, turned; what lies beyond the rotary width passes through."""
        ...

    def soft_cap(self, x: Array, cap: float) -> Array: ...

    def take_rows(self, x: Array, indices: Array) -> Array: ...

    def write_pages(self, keys: Array, values: Array, pages: KVPages, batch: RaggedBatch, group: int) -> None:
        """Store the [T, K, E] keys and values of the step where the page tables of the group say."""
        ...

    def attention(
        self, queries: Array, pages: KVPages, batch: RaggedBatch, group: int, scale: float, window: int = 0
    ) -> Array:
        """Causal attention of [T, H, E] over the pages of each row; `window` > 0 keeps the last `window` positions."""
        ...

    def copy_pages(self, pages: KVPages, sources: IntArray, targets: IntArray) -> None: ...

    def sample(self, logits: Array, batch: SamplingBatch) -> SampledTokens: ...
