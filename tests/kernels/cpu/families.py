"""A tiny model of each family in sizes that the native kernels take, and a runner that gives it tokens in any order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from pagoda.executor.forward import RecordedForward
from pagoda.kernels.base import KVPages
from pagoda.kernels.cpu import CpuKernels
from pagoda.kernels.cpu.program import Program
from pagoda.kernels.reference import ReferenceOperators
from pagoda.models import Model
from tests.models.paged import PagedRunner
from tests.models.tiny import SMALL, randomize, save_and_load

SIZES = {**SMALL, "hidden_size": 96, "intermediate_size": 80, "num_attention_heads": 6, "head_dim": 16}
FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma3")
MAX_TOKENS = 128


def make_reference(family: str) -> PreTrainedModel:
    if family == "llama":
        return LlamaForCausalLM(LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True))
    if family == "mistral":
        return MistralForCausalLM(MistralConfig(**SIZES, sliding_window=20))
    if family == "qwen2":
        return Qwen2ForCausalLM(Qwen2Config(**SIZES, tie_word_embeddings=True))
    if family == "qwen3":
        return Qwen3ForCausalLM(Qwen3Config(**SIZES))
    gemma = {"num_hidden_layers": 7, "head_dim": 32, "sliding_window": 6, "query_pre_attn_scalar": 15}
    return Gemma3ForCausalLM(Gemma3TextConfig(**{**SIZES, **gemma}, final_logit_softcapping=20.0))


def make_family(family: str, folder: Path) -> Model:
    return save_and_load(randomize(make_reference(family)), folder)


class NativeRunner(PagedRunner):
    """Pages in the native layout, and logits through one recorded program."""

    def __init__(self, model: Model, kernels: CpuKernels, seed: int = 0, num_pages: int = 64) -> None:
        super().__init__(model, ReferenceOperators(), 16, num_pages, seed)
        self.caches = [poisoned(kernels, pages) for pages in self.caches]
        self.forward = RecordedForward(model, kernels, self.caches, MAX_TOKENS)

    @property
    def program(self) -> Program:
        return self.forward._program

    def step(self, tokens: Mapping[str, Sequence[int]]) -> dict[str, np.ndarray]:
        for row, ids in tokens.items():
            self._grow(row, len(ids))
        batch = self._batch(tokens)
        logits = self.forward.logits(batch, np.arange(len(batch.token_ids), dtype=np.int32))
        for row in tokens:
            self._give_back(row)
        starts = batch.row_starts
        return {row: logits[starts[i] : starts[i + 1]] for i, row in enumerate(tokens)}


def poisoned(kernels: CpuKernels, pages: KVPages) -> KVPages:
    native = kernels.new_pages(*pages.keys.shape)
    native.keys[:] = native.values[:] = np.nan
    return native
