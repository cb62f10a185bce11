"""What a model's header says about it, in the words a user asks in."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from pagoda.weights.checkpoint import Checkpoint, open_checkpoint


class ModelDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A field is None where the header does not tell."""

    architecture: str | None
    num_layers: int | None
    num_heads: int | None
    num_kv_heads: int | None
    embedding_length: int | None
    context_length: int | None
    vocabulary_size: int | None
    num_parameters: int
    num_tensors: Mapping[str, int]  # by format
    quantization: str  # the format that most of the bytes are in


# Field, then its key in GGUF metadata (behind the architecture's name) and in a Hugging Face config.
_COUNTS = {
    "num_layers": ("block_count", "num_hidden_layers"),
    "num_heads": ("attention.head_count", "num_attention_heads"),
    "num_kv_heads": ("attention.head_count_kv", "num_key_value_heads"),
    "embedding_length": ("embedding_length", "hidden_size"),
    "context_length": ("context_length", "max_position_embeddings"),
}


def describe_model(path: Path) -> ModelDescription:
    """Read the header of a .gguf file or of a folder in Hugging Face form; the weights are not read."""
    with open_checkpoint(path) as checkpoint:
        return describe_checkpoint(checkpoint)


def describe_checkpoint(checkpoint: Checkpoint) -> ModelDescription:
    is_gguf = checkpoint.kind == "gguf"
    config = checkpoint.config
    architecture = _text(config.get("general.architecture" if is_gguf else "model_type"))
    keys = {field: f"{architecture}.{gguf}" if is_gguf else hub for field, (gguf, hub) in _COUNTS.items()}
    counts = {field: _count(config.get(key)) for field, key in keys.items()}
    fields: dict[str, Any] = {**counts, **_summary_of_tensors(checkpoint)}
    vocabulary_size = _vocabulary_size(config, is_gguf)
    return ModelDescription(architecture=architecture, vocabulary_size=vocabulary_size, **fields)


def _summary_of_tensors(checkpoint: Checkpoint) -> dict[str, Any]:
    num_tensors: Counter[str] = Counter()
    num_bytes: Counter[str] = Counter()
    num_parameters = 0
    for name in checkpoint.names:
        tensor = checkpoint.tensor(name)
        num_tensors[tensor.format] += 1
        num_bytes[tensor.format] += tensor.raw.nbytes
        num_parameters += math.prod(tensor.shape)
    quantization = num_bytes.most_common(1)[0][0] if num_bytes else "none"
    return {
        "num_parameters": num_parameters,
        "num_tensors": dict(num_tensors.most_common()),
        "quantization": quantization,
    }


def _vocabulary_size(config: Mapping[str, Any], is_gguf: bool) -> int | None:
    if not is_gguf:
        return _count(config.get("vocab_size"))
    tokens = config.get("tokenizer.ggml.tokens")
    return len(tokens) if isinstance(tokens, list) else None


def _count(value: Any) -> int | None:
    """A number, or the largest where each layer has its own."""
    if isinstance(value, np.ndarray) and value.size and value.dtype.kind in "iu":
        return int(value.max())
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
