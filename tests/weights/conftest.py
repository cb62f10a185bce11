"""Small model files: the two real GGUF models cut down to their keys, and a safetensors file shaped like MiniLM."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from tests.weights.gguf_surgery import small_copy


@pytest.fixture(scope="session")
def small_smollm2(smollm2_path: Path) -> bytes:
    return small_copy(smollm2_path)


@pytest.fixture(scope="session")
def small_gemma3(gemma3_path: Path) -> bytes:
    return small_copy(gemma3_path)


@pytest.fixture(scope="session")
def small_safetensors() -> bytes:
    values = np.random.default_rng(3)
    tensors = {
        "embeddings.position_ids": np.arange(8, dtype=np.int64)[None],
        "embeddings.word_embeddings.weight": values.standard_normal((30, 8)).astype(np.float16),
        "embeddings.LayerNorm.weight": np.ones(8, dtype=np.float32),
        "embeddings.LayerNorm.bias": np.zeros(8, dtype=np.float32),
    }
    for layer in range(2):
        for part in ("attention.self.query", "attention.self.key", "attention.output.dense", "intermediate.dense"):
            tensors[f"encoder.layer.{layer}.{part}.weight"] = values.standard_normal((8, 8)).astype(np.float32)
            tensors[f"encoder.layer.{layer}.{part}.bias"] = values.standard_normal(8).astype(np.float32)
    return save(tensors, metadata={"format": "pt"})
