"""Gemma 3, text: window layers with every sixth one full, two rope bases, norms before and after each block and on
queries and keys, scaled embeddings. Hugging Face stores norm weights less 1; GGUF files have the 1 added."""

from __future__ import annotations

from dataclasses import replace

from pagoda.models import gguf_config, huggingface_config
from pagoda.models.config import ModelConfig, RopeConfig
from pagoda.models.config_reader import ConfigReader
from pagoda.models.family import Family
from pagoda.models.huggingface_config import MAX_FACTOR, MAX_THETA, MIN_FACTOR
from pagoda.models.weight_names import HUGGINGFACE_NAMES
from pagoda.weights.checkpoint import Checkpoint

FULL_LAYER_EVERY = 6
GLOBAL_THETA = 1_000_000.0
LOCAL_THETA = 10_000.0
# The largest model alone scales its scores by the width of a query group; its GGUF file does not say so.
NUM_LAYERS_27B = 62

# Published configurations leave out whatever equals these.
DEFAULTS: dict[str, int | float | bool] = {
    "vocab_size": 262_208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
}


def read_huggingface(reader: ConfigReader) -> ModelConfig:
    reader = reader.with_defaults(**DEFAULTS)
    reader.require("hidden_activation", "gelu_pytorch_tanh")
    reader.require("use_bidirectional_attention", False)
    reader.refuse("attn_logit_softcapping", "is not supported")
    bias = reader.boolean("attention_bias", False)
    rope, window_rope = read_ropes(reader)
    config = huggingface_config.read_decoder(reader.without("rope_parameters", "rope_scaling"), "gemma3")
    window = reader.integer("sliding_window", 4096)
    if reader.has("layer_types"):
        windows = huggingface_config.read_windows(reader, config.num_layers, window)
    else:
        full_layer_every = reader.integer("sliding_window_pattern", FULL_LAYER_EVERY)
        windows = alternate(config.num_layers, window, full_layer_every)
    config = replace(
        config,
        rope=rope,
        window_rope=window_rope,
        windows=windows,
        attention_scale=reader.number("query_pre_attn_scalar", 256.0, MIN_FACTOR, MAX_FACTOR) ** -0.5,
        qkv_bias=bias,
        output_bias=bias,
        norm_offset=1.0,
    )
    return as_gemma(config, reader)


def read_ropes(reader: ConfigReader) -> tuple[RopeConfig, RopeConfig]:
    head_dim = reader.integer("head_dim")
    max_positions = reader.integer("max_position_embeddings")
    if not reader.has("rope_parameters"):
        full = huggingface_config.read_rope(reader.with_defaults(rope_theta=GLOBAL_THETA), head_dim, max_positions)
        local_theta = reader.number("rope_local_base_freq", LOCAL_THETA, minimum=1.0, maximum=MAX_THETA)
        return full, RopeConfig(local_theta, head_dim)
    section = reader.section("rope_parameters")
    full, sliding = (
        huggingface_config.read_rope_parameters(section.section(kind), head_dim, max_positions, theta)
        for kind, theta in (("full_attention", GLOBAL_THETA), ("sliding_attention", LOCAL_THETA))
    )
    return full, sliding


def read_gguf(reader: ConfigReader, checkpoint: Checkpoint) -> ModelConfig:
    config = gguf_config.read_decoder(reader, checkpoint, "gemma3")
    window = reader.integer("attention.sliding_window")
    full_layer_every = reader.integer("attention.sliding_window_pattern", FULL_LAYER_EVERY)
    local_theta = reader.number("rope.freq_base_swa", LOCAL_THETA, minimum=1.0, maximum=MAX_THETA)
    if config.num_layers == NUM_LAYERS_27B:
        config = replace(config, attention_scale=(config.hidden_size / config.num_heads) ** -0.5)
    config = replace(
        config,
        windows=alternate(config.num_layers, window, full_layer_every),
        window_rope=RopeConfig(local_theta, config.rope.rotary_dim),
    )
    return as_gemma(config, reader)


def as_gemma(config: ModelConfig, reader: ConfigReader) -> ModelConfig:
    """What both kinds of file leave unsaid, and the one key they share."""
    if reader.has("final_logit_softcapping"):
        cap = reader.number("final_logit_softcapping", minimum=MIN_FACTOR, maximum=MAX_FACTOR)
        config = replace(config, logit_soft_cap=cap)
    return replace(
        config,
        activation="gelu_tanh",
        query_key_norms=True,
        sandwich_norms=True,
        embedding_scale=config.hidden_size**0.5,
    )


def alternate(num_layers: int, window: int, full_layer_every: int) -> tuple[int, ...]:
    return tuple(window if (layer + 1) % full_layer_every else 0 for layer in range(num_layers))


FAMILY = Family(
    name="gemma3",
    architectures=("Gemma3ForCausalLM",),
    model_type="gemma3_text",
    read_huggingface=read_huggingface,
    gguf_architecture="gemma3",
    read_gguf=read_gguf,
    huggingface_names=HUGGINGFACE_NAMES.with_roles(
        post_attention_norm="model.layers.{layer}.post_attention_layernorm.weight",
        mlp_norm="model.layers.{layer}.pre_feedforward_layernorm.weight",
        post_mlp_norm="model.layers.{layer}.post_feedforward_layernorm.weight",
    ),
)
