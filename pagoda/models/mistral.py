"""Mistral: Llama whose layers all see a window, where the configuration names one. Its GGUF files call it llama."""

from __future__ import annotations

from dataclasses import replace

from pagoda.models import llama
from pagoda.models.config import ModelConfig
from pagoda.models.config_reader import ConfigReader


def read_huggingface(reader: ConfigReader) -> ModelConfig:
    config = llama.read_huggingface(reader)
    window = reader.integer("sliding_window", 0, minimum=0)
    return replace(config, family="mistral", windows=(window,) * config.num_layers)


FAMILY = replace(
    llama.FAMILY,
    name="mistral",
    architectures=("MistralForCausalLM",),
    model_type="mistral",
    read_huggingface=read_huggingface,
    gguf_architecture=None,
)
