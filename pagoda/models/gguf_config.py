"""The parts of GGUF metadata that the families share."""

from __future__ import annotations

from pagoda.core.errors import ModelFileError
from pagoda.models.config import DivisorScaling, LinearScaling, ModelConfig, RopeConfig, RopeScaling, YarnScaling
from pagoda.models.config_reader import ConfigReader
from pagoda.models.huggingface_config import MAX_FACTOR, MAX_HEADS, MAX_LAYERS, MAX_THETA, MIN_FACTOR, yarn_magnitude
from pagoda.weights.checkpoint import Checkpoint

ROPE_DIVISORS = "rope_freqs.weight"
# Each would change the result, and no family here computes it.
REFUSED_KEYS = (
    "attn_logit_softcapping",
    "embedding_scale",
    "logit_scale",
    "residual_scale",
    "rope.dimension_sections",
    "rope.scale_linear",
    "rope.scaling.alpha",
    "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_log_multiplier",
)


def read_decoder(reader: ConfigReader, checkpoint: Checkpoint, family: str) -> ModelConfig:
    reader.require("expert_count", 0)
    reader.require("attention.causal", True)
    for key in REFUSED_KEYS:
        reader.refuse(key, "is not supported")
    hidden_size = reader.integer("embedding_length")
    num_heads = reader.integer("attention.head_count", maximum=MAX_HEADS)
    num_layers = reader.integer("block_count", maximum=MAX_LAYERS)
    head_dim = reader.integer("attention.key_length", hidden_size // num_heads)
    reader.require("attention.value_length", head_dim)
    max_positions = reader.integer("context_length")
    return ModelConfig(
        family=family,
        vocab_size=read_vocab_size(checkpoint),
        hidden_size=hidden_size,
        intermediate_size=reader.integer("feed_forward_length"),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=reader.integer("attention.head_count_kv", num_heads, maximum=MAX_HEADS),
        head_dim=head_dim,
        max_positions=max_positions,
        norm_epsilon=reader.number("attention.layer_norm_rms_epsilon", maximum=1.0),
        tied_embeddings="output.weight" not in checkpoint,
        windows=(reader.integer("attention.sliding_window", 0, minimum=0),) * num_layers,
        rope=read_rope(reader, checkpoint, head_dim, max_positions),
        attention_scale=reader.number("attention.scale", head_dim**-0.5, maximum=MAX_FACTOR),
        qkv_bias="blk.0.attn_q.bias" in checkpoint,
        output_bias="blk.0.attn_output.bias" in checkpoint,
        mlp_bias="blk.0.ffn_down.bias" in checkpoint,
    )


def read_vocab_size(checkpoint: Checkpoint) -> int:
    """The rows of the embedding: a vocabulary key is not always there, and a token beyond them has no embedding."""
    shape = checkpoint.tensor("token_embd.weight").shape
    if len(shape) != 2:
        raise ModelFileError(f"tensor token_embd.weight has the shape {shape}; it must have two axes")
    return shape[0]


def read_rope(reader: ConfigReader, checkpoint: Checkpoint, head_dim: int, max_positions: int) -> RopeConfig:
    return RopeConfig(
        theta=reader.number("rope.freq_base", 10_000.0, minimum=1.0, maximum=MAX_THETA),
        rotary_dim=reader.integer("rope.dimension_count", head_dim, minimum=2, maximum=head_dim),
        scaling=read_scaling(reader, checkpoint, max_positions),
    )


def read_scaling(reader: ConfigReader, checkpoint: Checkpoint, max_positions: int) -> RopeScaling | None:
    kind = reader.choice("rope.scaling.type", ("none", "linear", "yarn"), "none")
    if ROPE_DIVISORS in checkpoint:
        if kind != "none":
            raise reader.refusal("rope.scaling.type", f"is not supported together with {ROPE_DIVISORS}")
        return read_divisors(checkpoint)
    if kind == "none":
        return None
    factor = reader.number("rope.scaling.factor", minimum=MIN_FACTOR, maximum=MAX_FACTOR)
    if kind == "linear":
        return LinearScaling(factor)
    reader.require("rope.scaling.yarn_ext_factor", 1.0)
    return YarnScaling(
        factor=factor,
        original_max_positions=reader.integer("rope.scaling.original_context_length", max_positions),
        beta_fast=reader.number("rope.scaling.yarn_beta_fast", 32.0, maximum=MAX_FACTOR),
        beta_slow=reader.number("rope.scaling.yarn_beta_slow", 1.0, maximum=MAX_FACTOR),
        magnitude=yarn_magnitude(factor) * reader.number("rope.scaling.attn_factor", 1.0, maximum=MAX_FACTOR),
    )


def read_divisors(checkpoint: Checkpoint) -> DivisorScaling:
    divisors = checkpoint.tensor(ROPE_DIVISORS).to_float32()
    if divisors.ndim != 1 or not ((divisors >= MIN_FACTOR) & (divisors <= MAX_FACTOR)).all():
        raise ModelFileError(f"{ROPE_DIVISORS} must be a vector of numbers between {MIN_FACTOR} and {MAX_FACTOR}")
    return DivisorScaling(tuple(divisors.tolist()))
