"""The operator table in plain NumPy: the oracle of every device and the engine where no compiler is present."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from pagoda.kernels.base import (
    FLOAT_FORMATS,
    Compute,
    FloatArray,
    IntArray,
    KVPages,
    RaggedBatch,
    RopeFrequencies,
    RopeTable,
    StoredWeight,
    Weight,
)
from pagoda.kernels.reference import activation, attention, integer, linear, norm, paging, rope, sampling
from pagoda.kernels.reference.dense_weights import DenseWeights
from pagoda.kernels.sampling import SampledTokens, SamplingBatch


class ReferenceOperators:
    """`accumulate` is the type of sums: float64 for an oracle, float32 for an engine that must also be quick.

    Norms, rope angles and the sums of a softmax are float64 in both. With `compute` "int8" the inputs of products with
    quantized weights are rounded to bytes, as the native kernels round them.
    """

    def __init__(self, accumulate: npt.DTypeLike = np.float32, compute: Compute = "f32") -> None:
        self._accumulate = np.dtype(accumulate)
        self._rounds_inputs = compute == "int8"
        self._dense_weights = DenseWeights()

    def prepare(self, weight: Weight) -> None:
        self._dense_weights.get(weight)

    def num_bytes(self) -> int:
        return self._dense_weights.num_bytes()

    def stored(self, weight: Weight) -> StoredWeight:
        return StoredWeight(4 * math.prod(weight.shape), "f32")

    def embed(self, weight: Weight, token_ids: IntArray) -> FloatArray:
        return linear.embed(self._dense_weights, weight, token_ids)

    def linear(self, x: FloatArray, weight: Weight, bias: Weight | None = None) -> FloatArray:
        if self._rounds_inputs and weight.format not in FLOAT_FORMATS:
            x = integer.round_inputs(x)
        dense_bias = None if bias is None else self._dense_weights.get(bias)
        return linear.linear(x, self._dense_weights.get(weight), dense_bias, self._accumulate)

    def rms_norm(self, x: FloatArray, weight: Weight, epsilon: float, offset: float = 0.0) -> FloatArray:
        return norm.rms_norm(x, self._dense_weights.get(weight), epsilon, offset)

    def add(self, x: FloatArray, y: FloatArray) -> FloatArray:
        return x + y

    def scale(self, x: FloatArray, factor: float) -> FloatArray:
        return x * np.float32(factor)

    def gated_silu(self, gate: FloatArray, up: FloatArray) -> FloatArray:
        return activation.gated_silu(gate, up, self._accumulate)

    def gated_gelu(self, gate: FloatArray, up: FloatArray) -> FloatArray:
        return activation.gated_gelu(gate, up, self._accumulate)

    def rope_table(self, positions: IntArray, frequencies: RopeFrequencies) -> RopeTable:
        return rope.rope_table(positions, frequencies)

    def rope(self, x: FloatArray, table: RopeTable) -> FloatArray:
        return rope.rope(x, table, self._accumulate)

    def soft_cap(self, x: FloatArray, cap: float) -> FloatArray:
        return activation.soft_cap(x, cap, self._accumulate)

    def take_rows(self, x: FloatArray, indices: IntArray) -> FloatArray:
        return x[indices]

    def write_pages(self, keys: FloatArray, values: FloatArray, pages: KVPages, batch: RaggedBatch, group: int) -> None:
        paging.write_pages(keys, values, pages, batch, group)

    def attention(
        self, queries: FloatArray, pages: KVPages, batch: RaggedBatch, group: int, scale: float, window: int = 0
    ) -> FloatArray:
        return attention.attention(queries, pages, batch, group, scale, window, self._accumulate)

    def copy_pages(self, pages: KVPages, sources: IntArray, targets: IntArray) -> None:
        paging.copy_pages(pages, sources, targets)

    def sample(self, logits: FloatArray, batch: SamplingBatch) -> SampledTokens:
        return sampling.sample(logits, batch)
