"""A tiny transformers model as a GGUF file, written by the `gguf` package as the public converters do."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
from transformers import PreTrainedModel

from tests.models.gguf_to_transformers import transformers_names


def write_gguf(reference: PreTrainedModel, architecture: str, path: Path, divisors: np.ndarray | None = None) -> Path:
    """`divisors` are the rope factors that a converter stores for llama3 scaling."""
    config = reference.config
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    add_rope(writer, config.rope_parameters)
    if architecture == "gemma3":
        writer.add_sliding_window(config.sliding_window)
    if divisors is not None:
        writer.add_tensor("rope_freqs.weight", divisors.astype(np.float32))
    add_weights(writer, reference, architecture)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add_rope(writer: gguf.GGUFWriter, parameters: dict) -> None:
    parameters = parameters.get("full_attention", parameters)
    writer.add_rope_freq_base(parameters["rope_theta"])
    kind = parameters["rope_type"]
    if kind in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(kind))
        writer.add_rope_scaling_factor(parameters["factor"])
    if kind == "yarn":
        writer.add_rope_scaling_orig_ctx_len(parameters["original_max_position_embeddings"])


def add_weights(writer: gguf.GGUFWriter, reference: PreTrainedModel, architecture: str) -> None:
    config = reference.config
    names = {stem: name for name, stem in transformers_names(architecture, config.num_hidden_layers).items()}
    state = reference.state_dict()
    if config.tie_word_embeddings:
        state.pop("lm_head.weight", None)
    for name, tensor in state.items():
        values = tensor.numpy()
        if architecture == "llama" and ".q_proj." in name:
            values = permuted(values, config.num_attention_heads)
        if architecture == "llama" and ".k_proj." in name:
            values = permuted(values, config.num_key_value_heads)
        if architecture == "gemma3" and "norm" in name:
            values = values + np.float32(1.0)
        stem, suffix = name.rsplit(".", 1)
        writer.add_tensor(f"{names[stem]}.{suffix}", np.ascontiguousarray(values))


def permuted(values: np.ndarray, num_heads: int) -> np.ndarray:
    """Rows from halves to the order of interleaved rope."""
    halves = values.reshape(num_heads, 2, values.shape[0] // num_heads // 2, *values.shape[1:])
    return halves.swapaxes(1, 2).reshape(values.shape)
