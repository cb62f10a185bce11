"""The door to the native kernels."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable

from pagoda.core.cache import KVCacheType
from pagoda.kernels.base import FLOAT_FORMATS, Compute, FloatArray, IntArray, KVPages, StoredWeight, Weight
from pagoda.kernels.cpu.library import available_instruction_sets
from pagoda.kernels.cpu.program import SLOTS, Program, new_pages, planned_workspace
from pagoda.kernels.cpu.recorder import LANES, Recorder
from pagoda.kernels.cpu.sampling import NativeSampler
from pagoda.kernels.cpu.weights import PackedWeights, packed_bytes
from pagoda.kernels.cpu.workspace import Workspace
from pagoda.kernels.reference import paging
from pagoda.kernels.sampling import SampledTokens, SamplingBatch
from pagoda.kernels.symbol import Symbol


def why_unavailable(page_size: int, head_dim: int, weights: Iterable[Weight]) -> str:
    """Why the native kernels cannot run a model here; empty when they can."""
    if not available_instruction_sets():
        return "they were not built (install a C++ compiler, then pagoda again)"
    if page_size != SLOTS:
        return f"they take a block_size of {SLOTS}, not {page_size}"
    if head_dim % LANES:
        return f"they take heads in steps of {LANES}, not {head_dim}"
    for weight in weights:
        if len(weight.shape) == 2 and not packed_bytes(weight):
            return f"they take no weights of format {weight.format} and shape {weight.shape}"
        if len(weight.shape) == 1 and weight.shape[0] % LANES:
            return f"they take norms in steps of {LANES}, not {weight.shape[0]}"
    return ""


class CpuKernels:
    """One set of packed weights and the programs over it."""

    def __init__(
        self, num_threads: int | None = None, instruction_set: str | None = None, compute: Compute = "f32"
    ) -> None:
        self.compute = compute
        self.num_threads = num_threads or len(os.sched_getaffinity(0))
        self.instruction_set = instruction_set or available_instruction_sets()[0]
        self._weights = PackedWeights(self.num_threads)
        self._sampler = NativeSampler(self.num_threads, self.instruction_set)

    def prepare(self, weight: Weight) -> None:
        """Repack a matrix ahead of the first step; norm weights and biases need nothing."""
        if len(weight.shape) == 2:
            self._weights.pack(weight)

    def new_pages(
        self, num_pages: int, page_size: int, num_kv_heads: int, head_dim: int, kv_cache_type: KVCacheType = "f32"
    ) -> KVPages:
        return new_pages(num_pages, page_size, num_kv_heads, head_dim, kv_cache_type)

    def recorder(self, layers: list[KVPages]) -> Recorder:
        return Recorder(self._weights, layers, self.compute == "int8")

    def compile(
        self, recorder: Recorder, logits: Symbol, max_tokens: int, kept: Symbol | None = None, max_rows: int = 0
    ) -> Program:
        """For steps of at most so many tokens; memory for `max_rows` rows of logits is kept ready."""
        return Program(recorder, logits, max_tokens, self.num_threads, self.instruction_set, kept, max_rows)

    def workspace(
        self, recorder: Recorder, logits: Symbol, max_tokens: int, kept: Symbol | None, max_rows: int
    ) -> Workspace:
        """What `compile` will take beside the weights."""
        return planned_workspace(recorder, logits, max_tokens, kept, max_rows, self.num_threads)

    def sample(self, logits: FloatArray, batch: SamplingBatch) -> SampledTokens:
        return self._sampler.sample(logits, batch)

    def copy_pages(self, pages: KVPages, sources: IntArray, targets: IntArray) -> None:
        paging.copy_pages(pages, sources, targets)

    def num_bytes(self) -> int:
        return self._weights.num_bytes()

    def stored(self, weight: Weight) -> StoredWeight:
        in_bytes = self.compute == "int8" and weight.format not in FLOAT_FORMATS
        return StoredWeight(packed_bytes(weight) or 4 * math.prod(weight.shape), "int8" if in_bytes else "f32")
