"""From a checkpoint to a model."""

from __future__ import annotations

from pagoda.kernels.base import RANDOM_FORMAT
from pagoda.models.base import Model
from pagoda.models.build import DecoderBuilder
from pagoda.models.config import ModelConfig
from pagoda.models.config_reader import ConfigReader
from pagoda.models.random_weights import RandomSource
from pagoda.models.registry import find_family
from pagoda.models.weight_source import Progress, WeightSource
from pagoda.weights.checkpoint import Checkpoint


def load_model(checkpoint: Checkpoint, progress: Progress | None = None) -> Model:
    """Every tensor is checked against the configuration; none is decoded yet."""
    family = find_family(checkpoint.kind, checkpoint.config)
    names = family.gguf_names if checkpoint.kind == "gguf" else family.huggingface_names
    source = WeightSource(checkpoint, names, progress)
    return DecoderBuilder(read_config(checkpoint), source).build()


def random_model(checkpoint: Checkpoint, matrix_format: str = RANDOM_FORMAT) -> Model:
    """The model of a configuration, with random weights."""
    return DecoderBuilder(read_config(checkpoint), RandomSource(matrix_format)).build()


def read_config(checkpoint: Checkpoint) -> ModelConfig:
    family = find_family(checkpoint.kind, checkpoint.config)
    if checkpoint.kind == "gguf":
        reader = ConfigReader(checkpoint.config, checkpoint.path.name, f"{family.gguf_architecture}.")
        return family.read_gguf(reader, checkpoint)
    return family.read_huggingface(ConfigReader(checkpoint.config, "config.json"))
