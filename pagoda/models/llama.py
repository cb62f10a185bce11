"""Llama 2 and 3, SmolLM2, and whatever else is a plain decoder with grouped heads and a SiLU gate.

GGUF files of this architecture (Mistral's too) hold query and key rows in the order of interleaved rope."""

from __future__ import annotations

from dataclasses import replace

from pagoda.models import gguf_config, huggingface_config
from pagoda.models.config import ModelConfig
from pagoda.models.config_reader import ConfigReader
from pagoda.models.family import Family
from pagoda.weights.checkpoint import Checkpoint


def read_huggingface(reader: ConfigReader) -> ModelConfig:
    reader.require("hidden_act", "silu")
    config = huggingface_config.read_decoder(reader, "llama")
    bias = reader.boolean("attention_bias", False)
    return replace(config, qkv_bias=bias, output_bias=bias, mlp_bias=reader.boolean("mlp_bias", False))


def read_gguf(reader: ConfigReader, checkpoint: Checkpoint) -> ModelConfig:
    config = gguf_config.read_decoder(reader, checkpoint, "llama")
    return replace(config, rope=replace(config.rope, interleaved=True))


FAMILY = Family(
    name="llama",
    architectures=("LlamaForCausalLM",),
    model_type="llama",
    read_huggingface=read_huggingface,
    gguf_architecture="llama",
    read_gguf=read_gguf,
)
