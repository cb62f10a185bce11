"""Qwen 2 and 2.5: Llama with biases on queries, keys and values; upper layers may see a window."""

from __future__ import annotations

from dataclasses import replace

from pagoda.models import gguf_config, huggingface_config, llama
from pagoda.models.config import ModelConfig
from pagoda.models.config_reader import ConfigReader
from pagoda.models.family import Family
from pagoda.weights.checkpoint import Checkpoint


def read_huggingface(reader: ConfigReader) -> ModelConfig:
    config = llama.read_huggingface(reader)
    windows = read_windows(reader, config.num_layers)
    return replace(config, family="qwen2", qkv_bias=True, output_bias=False, windows=windows)


def read_windows(reader: ConfigReader, num_layers: int) -> tuple[int, ...]:
    """`sliding_window` counts only where `use_sliding_window` says so."""
    if not reader.boolean("use_sliding_window", False):
        return (0,) * num_layers
    window = reader.integer("sliding_window")
    if reader.has("layer_types"):
        return huggingface_config.read_windows(reader, num_layers, window)
    num_full = reader.integer("max_window_layers", minimum=0)
    return tuple(0 if layer < num_full else window for layer in range(num_layers))


def read_gguf(reader: ConfigReader, checkpoint: Checkpoint) -> ModelConfig:
    return gguf_config.read_decoder(reader, checkpoint, "qwen2")


FAMILY = Family(
    name="qwen2",
    architectures=("Qwen2ForCausalLM",),
    model_type="qwen2",
    read_huggingface=read_huggingface,
    gguf_architecture="qwen2",
    read_gguf=read_gguf,
)
