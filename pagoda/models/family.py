"""What one family declares: the names it goes by, how its configuration is read, what its tensors are called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pagoda.models.config import ModelConfig
from pagoda.models.config_reader import ConfigReader
from pagoda.models.weight_names import GGUF_NAMES, HUGGINGFACE_NAMES, WeightNames
from pagoda.weights.checkpoint import Checkpoint


@dataclass(frozen=True)
class Family:
    """`architectures` and `model_type` are those of config.json; `gguf_architecture` is None where no GGUF file has it.

    The reader of GGUF metadata also gets the checkpoint, for some facts lie in the tensors alone.
    """

    name: str
    architectures: tuple[str, ...]
    model_type: str
    read_huggingface: Callable[[ConfigReader], ModelConfig]
    gguf_architecture: str | None
    read_gguf: Callable[[ConfigReader, Checkpoint], ModelConfig]
    huggingface_names: WeightNames = HUGGINGFACE_NAMES
    gguf_names: WeightNames = GGUF_NAMES
