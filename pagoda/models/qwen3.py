"""Qwen 3: Llama with norms on queries and keys."""

from __future__ import annotations

from dataclasses import replace

from pagoda.models import gguf_config, llama, qwen2
from pagoda.models.config import ModelConfig
from pagoda.models.config_reader import ConfigReader
from pagoda.models.family import Family
from pagoda.weights.checkpoint import Checkpoint


def read_huggingface(reader: ConfigReader) -> ModelConfig:
    config = llama.read_huggingface(reader.with_defaults(head_dim=128))
    windows = qwen2.read_windows(reader, config.num_layers)
    return replace(config, family="qwen3", query_key_norms=True, windows=windows)


def read_gguf(reader: ConfigReader, checkpoint: Checkpoint) -> ModelConfig:
    return replace(gguf_config.read_decoder(reader, checkpoint, "qwen3"), query_key_norms=True)


FAMILY = Family(
    name="qwen3",
    architectures=("Qwen3ForCausalLM",),
    model_type="qwen3",
    read_huggingface=read_huggingface,
    gguf_architecture="qwen3",
    read_gguf=read_gguf,
)
