"""What a decoder model is made of, as one frozen record whichever file it was read from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pagoda.core.errors import ModelFileError

Activation = Literal["silu", "gelu_tanh"]


@dataclass(frozen=True)
class LinearScaling:
    """Positions count for 1 / factor."""

    factor: float


@dataclass(frozen=True)
class Llama3Scaling:
    """Slow turns are divided by `factor`, fast ones kept, those between blended (Llama 3.1)."""

    factor: float
    low_frequency_factor: float
    high_frequency_factor: float
    original_max_positions: int


@dataclass(frozen=True)
class YarnScaling:
    """As llama3, blended along the dimensions of the head, with a factor on the magnitude (YaRN)."""

    factor: float
    original_max_positions: int
    beta_fast: float
    beta_slow: float
    magnitude: float


@dataclass(frozen=True)
class DivisorScaling:
    """Each frequency has its own divisor, stored in the file (GGUF `rope_freqs.weight`)."""

    divisors: tuple[float, ...]


RopeScaling = LinearScaling | Llama3Scaling | YarnScaling | DivisorScaling


@dataclass(frozen=True)
class RopeConfig:
    theta: float
    rotary_dim: int
    scaling: RopeScaling | None = None
    interleaved: bool = False

    def __post_init__(self) -> None:
        check(self.rotary_dim % 2 == 0, f"the rotary width {self.rotary_dim} must be even")
        if isinstance(self.scaling, DivisorScaling):
            expected = self.rotary_dim // 2
            check(len(self.scaling.divisors) == expected, f"rope_freqs.weight must hold {expected} values")


@dataclass(frozen=True)
class ModelConfig:
    """`windows` has one entry a layer: how many of the last tokens it sees, 0 for all.

    `norm_offset` is added to every norm weight. `sandwich_norms` are norms after attention and after the MLP as well
    as before them. A window layer turns by `window_rope` where that is given.
    """

    family: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_positions: int
    norm_epsilon: float
    tied_embeddings: bool
    windows: tuple[int, ...]
    rope: RopeConfig
    attention_scale: float
    window_rope: RopeConfig | None = None
    activation: Activation = "silu"
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    query_key_norms: bool = False
    sandwich_norms: bool = False
    norm_offset: float = 0.0
    embedding_scale: float = 1.0
    logit_soft_cap: float = 0.0

    def __post_init__(self) -> None:
        check(
            self.num_heads % self.num_kv_heads == 0,
            f"{self.num_heads} query heads cannot share {self.num_kv_heads} key/value heads evenly",
        )
        check(len(self.windows) == self.num_layers, "there must be one window for each layer")
        for rope in (self.rope, self.window_rope):
            check(
                rope is None or rope.rotary_dim <= self.head_dim,
                f"the rotary width exceeds the head width {self.head_dim}",
            )


def check(condition: bool, message: str) -> None:
    if not condition:
        raise ModelFileError(f"model configuration: {message}")
