"""The oracle of a GGUF file: the model that transformers builds from the same weights, dequantized to float32.

Reading, dequantization and tensor names are those of the `gguf` package; nothing here comes from the engine.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

LOCAL_THETA = 10_000.0


def load_reference(path: str | Path) -> PreTrainedModel:
    """In float32, ready to evaluate."""
    reader = gguf.GGUFReader(path)
    architecture = str(field(reader, "general.architecture"))
    build_config, model_class = BUILDERS[architecture]
    config = build_config(reader, architecture)
    with torch.device("meta"):
        model = model_class(config)
    model.to_empty(device="cpu")
    state = state_dict(reader, architecture, config)
    missing, unexpected = model.load_state_dict(state, strict=False, assign=True)
    model.tie_weights()
    tied = {"lm_head.weight"} if config.tie_word_embeddings else set()
    assert set(missing) <= tied and not unexpected, (missing, unexpected)
    restore_buffers(model, model_class(shrunk(config)))
    return model.float().eval()


def field(reader: gguf.GGUFReader, key: str, default: Any = None) -> Any:
    found = reader.get_field(key)
    return default if found is None else found.contents()


def common(reader: gguf.GGUFReader, architecture: str) -> dict[str, Any]:
    def get(key: str, default: Any = None) -> Any:
        return field(reader, f"{architecture}.{key}", default)

    names = {tensor.name for tensor in reader.tensors}
    vocab_size = next(int(t.shape[1]) for t in reader.tensors if t.name == "token_embd.weight")
    num_heads = get("attention.head_count")
    theta = get("rope.freq_base", 10_000.0)
    return {
        "vocab_size": vocab_size,
        "hidden_size": get("embedding_length"),
        "intermediate_size": get("feed_forward_length"),
        "num_hidden_layers": get("block_count"),
        "num_attention_heads": num_heads,
        "num_key_value_heads": get("attention.head_count_kv", num_heads),
        "head_dim": get("attention.key_length", get("embedding_length") // num_heads),
        "max_position_embeddings": get("context_length"),
        "rms_norm_eps": get("attention.layer_norm_rms_epsilon"),
        "tie_word_embeddings": "output.weight" not in names,
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
        "attention_bias": "blk.0.attn_q.bias" in names,
        "pad_token_id": None,
        "bos_token_id": None,
        "eos_token_id": None,
    }


def llama_config(reader: gguf.GGUFReader, architecture: str) -> PreTrainedConfig:
    assert not any(tensor.name == "rope_freqs.weight" for tensor in reader.tensors), "rope scaling is not covered"
    return LlamaConfig(**common(reader, architecture))


def qwen2_config(reader: gguf.GGUFReader, architecture: str) -> PreTrainedConfig:
    return Qwen2Config(**common(reader, architecture))


def qwen3_config(reader: gguf.GGUFReader, architecture: str) -> PreTrainedConfig:
    return Qwen3Config(**common(reader, architecture))


def gemma3_config(reader: gguf.GGUFReader, architecture: str) -> PreTrainedConfig:
    values = common(reader, architecture)
    ropes = {
        "full_attention": values["rope_parameters"],
        "sliding_attention": {"rope_type": "default", "rope_theta": LOCAL_THETA},
    }
    values |= {
        "rope_parameters": ropes,
        "sliding_window": field(reader, "gemma3.attention.sliding_window"),
        "query_pre_attn_scalar": values["head_dim"],
    }
    return Gemma3TextConfig(**values)


BUILDERS: dict[str, tuple[Callable[[gguf.GGUFReader, str], PreTrainedConfig], type[PreTrainedModel]]] = {
    "llama": (llama_config, LlamaForCausalLM),
    "qwen2": (qwen2_config, Qwen2ForCausalLM),
    "qwen3": (qwen3_config, Qwen3ForCausalLM),
    "gemma3": (gemma3_config, Gemma3ForCausalLM),
}


def state_dict(reader: gguf.GGUFReader, architecture: str, config: PreTrainedConfig) -> dict[str, torch.Tensor]:
    names = transformers_names(architecture, config.num_hidden_layers)
    state = {}
    for tensor in reader.tensors:
        values = np.array(gguf.quants.dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        values = values.reshape(tuple(int(size) for size in reversed(tensor.shape)))
        if architecture == "llama" and tensor.name.endswith(("attn_q.weight", "attn_k.weight")):
            is_query = tensor.name.endswith("attn_q.weight")
            values = unpermuted(values, config.num_attention_heads if is_query else config.num_key_value_heads)
        if architecture == "gemma3" and "norm" in tensor.name:
            values = values - 1.0
        stem, suffix = tensor.name.rsplit(".", 1)
        state[f"{names[stem]}.{suffix}"] = torch.from_numpy(values)
    return state


def transformers_names(architecture: str, num_layers: int) -> dict[str, str]:
    """From the stem of a GGUF name to that of transformers."""
    stems = ["model.embed_tokens", "model.norm", "lm_head"]
    parts = [f"self_attn.{part}" for part in ("q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm")]
    parts += [f"mlp.{part}_proj" for part in ("gate", "up", "down")]
    parts += ["input_layernorm", "post_attention_layernorm"]
    parts += ["pre_feedforward_layernorm", "post_feedforward_layernorm"] if architecture == "gemma3" else []
    stems += [f"model.layers.{layer}.{part}" for layer in range(num_layers) for part in parts]
    known = {name: number for number, name in gguf.MODEL_ARCH_NAMES.items()}
    name_map = gguf.get_tensor_name_map(known[architecture], num_layers)
    mapped = {name_map.get_name(stem): stem for stem in stems}
    return {gguf_stem: stem for gguf_stem, stem in mapped.items() if gguf_stem is not None}


def unpermuted(values: np.ndarray, num_heads: int) -> np.ndarray:
    """Rows from the order of interleaved rope back to halves."""
    pairs = values.reshape(num_heads, values.shape[0] // num_heads // 2, 2, *values.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(values.shape))


def shrunk(config: PreTrainedConfig) -> PreTrainedConfig:
    """The same configuration with as little weight as possible, for the buffers that follow from it."""
    values = config.to_dict() | {"vocab_size": 8, "intermediate_size": 8}
    return type(config)(**values)


def restore_buffers(model: PreTrainedModel, source: PreTrainedModel) -> None:
    """Rope frequencies and the like are computed when a model is made; one made without memory lacks them."""
    buffers = dict(source.named_buffers())
    for name, buffer in model.named_buffers():
        buffer.copy_(buffers[name])
