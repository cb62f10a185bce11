"""Files to damage: a safetensors file shaped like MiniLM, and full headers over weights that take no disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors.numpy import save

from tests.weights.hostile import find_header


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
    return _with_padding(save(tensors, metadata={"format": "pt"}), 64)


def _with_padding(data: bytes, num_spaces: int) -> bytes:
    """A safetensors file whose header ends in more spaces, which leave a mutant room for longer numbers."""
    length = int.from_bytes(data[:8], "little")
    return (length + num_spaces).to_bytes(8, "little") + data[8 : 8 + length] + b" " * num_spaces + data[8 + length :]


def sparse_copy(original: Path, copy: Path) -> Path:
    """The header, and zeros that take no disk where the weights were."""
    header, _ = find_header(original)
    copy.write_bytes(header)
    with copy.open("r+b") as file:
        file.truncate(original.stat().st_size)
    return copy
