"""The parts of config.json that the families share. Both ways of writing rope are read: `rope_parameters` and the
older `rope_theta` with `rope_scaling`."""

from __future__ import annotations

import math

from pagoda.models.config import LinearScaling, Llama3Scaling, ModelConfig, RopeConfig, RopeScaling, YarnScaling
from pagoda.models.config_reader import ConfigReader

MAX_LAYERS = 1024
MAX_HEADS = 4096
# Far beyond any real model, and near enough for no product of them to overflow.
MAX_THETA = 1e12
MIN_FACTOR = 1e-3
MAX_FACTOR = 1e6
LAYER_TYPES = ("full_attention", "sliding_attention")
ROPE_TYPES = ("default", "linear", "llama3", "yarn")


def read_decoder(reader: ConfigReader, family: str) -> ModelConfig:
    reader.refuse("quantization_config", "is not supported; use an unquantized or a GGUF model")
    hidden_size = reader.integer("hidden_size")
    num_heads = reader.integer("num_attention_heads", maximum=MAX_HEADS)
    num_layers = reader.integer("num_hidden_layers", maximum=MAX_LAYERS)
    head_dim = reader.integer("head_dim", hidden_size // num_heads)
    max_positions = reader.integer("max_position_embeddings")
    return ModelConfig(
        family=family,
        vocab_size=reader.integer("vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=reader.integer("intermediate_size"),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=reader.integer("num_key_value_heads", num_heads, maximum=MAX_HEADS),
        head_dim=head_dim,
        max_positions=max_positions,
        norm_epsilon=reader.number("rms_norm_eps", 1e-6, maximum=1.0),
        tied_embeddings=reader.boolean("tie_word_embeddings", False),
        windows=(0,) * num_layers,
        rope=read_rope(reader, head_dim, max_positions),
        attention_scale=head_dim**-0.5,
    )


def read_windows(reader: ConfigReader, num_layers: int, window: int) -> tuple[int, ...]:
    kinds = reader.choices("layer_types", LAYER_TYPES, num_layers)
    return tuple(window if kind == "sliding_attention" else 0 for kind in kinds)


def read_rope(reader: ConfigReader, head_dim: int, max_positions: int) -> RopeConfig:
    reader.require("partial_rotary_factor", 1.0)
    if reader.has("rope_parameters"):
        return read_rope_parameters(reader.section("rope_parameters"), head_dim, max_positions)
    theta = reader.number("rope_theta", 10_000.0, minimum=1.0, maximum=MAX_THETA)
    scaling = read_scaling(reader.section("rope_scaling"), max_positions) if reader.has("rope_scaling") else None
    return RopeConfig(theta, head_dim, scaling)


def read_rope_parameters(
    section: ConfigReader, head_dim: int, max_positions: int, default_theta: float = 10_000.0
) -> RopeConfig:
    section.require("partial_rotary_factor", 1.0)
    theta = section.number("rope_theta", default_theta, minimum=1.0, maximum=MAX_THETA)
    return RopeConfig(theta, head_dim, read_scaling(section, max_positions))


def read_scaling(section: ConfigReader, max_positions: int) -> RopeScaling | None:
    kind = section.choice("rope_type" if section.has("rope_type") else "type", ROPE_TYPES, "default")
    if kind == "default":
        return None
    factor = section.number("factor", minimum=MIN_FACTOR, maximum=MAX_FACTOR)
    if kind == "linear":
        return LinearScaling(factor)
    original = section.integer("original_max_position_embeddings", max_positions)
    if kind == "llama3":
        low = section.number("low_freq_factor", maximum=MAX_FACTOR)
        high = section.number("high_freq_factor", maximum=MAX_FACTOR)
        if low >= high:
            raise section.refusal("low_freq_factor", f"must be less than high_freq_factor = {high}")
        return Llama3Scaling(factor, low, high, original)
    section.require("truncate", True)
    return YarnScaling(
        factor=factor,
        original_max_positions=original,
        beta_fast=section.number("beta_fast", 32.0, maximum=MAX_FACTOR),
        beta_slow=section.number("beta_slow", 1.0, maximum=MAX_FACTOR),
        magnitude=read_yarn_magnitude(section, factor),
    )


def read_yarn_magnitude(section: ConfigReader, factor: float) -> float:
    if section.has("attention_factor"):
        return section.number("attention_factor", maximum=MAX_FACTOR)
    if section.has("mscale") and section.has("mscale_all_dim"):
        own, all_dim = (section.number(key, maximum=MAX_FACTOR) for key in ("mscale", "mscale_all_dim"))
        return yarn_magnitude(factor, own) / yarn_magnitude(factor, all_dim)
    return yarn_magnitude(factor)


def yarn_magnitude(factor: float, strength: float = 1.0) -> float:
    return 1.0 if factor <= 1 else 0.1 * strength * math.log(factor) + 1.0
