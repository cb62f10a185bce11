"""A decoder from its configuration and its weights."""

from __future__ import annotations

from pagoda.models.config import ModelConfig
from pagoda.models.layers.attention import Attention
from pagoda.models.layers.decoder import DecoderLayer, DecoderModel, group_layers
from pagoda.models.layers.linear import Linear
from pagoda.models.layers.mlp import GatedMLP
from pagoda.models.layers.norm import RMSNorm
from pagoda.models.layers.rope import rope_frequencies
from pagoda.models.random_weights import RandomSource
from pagoda.models.weight_source import WeightSource


class DecoderBuilder:
    def __init__(self, config: ModelConfig, source: WeightSource | RandomSource) -> None:
        self._config = config
        self._source = source
        self._groups = group_layers(config)

    def build(self) -> DecoderModel:
        config = self._config
        embedding = self._source.take("embedding", (config.vocab_size, config.hidden_size))
        layers = tuple(self._layer(index) for index in range(config.num_layers))
        final_norm = self._norm("final_norm", config.hidden_size, None)
        head = embedding if config.tied_embeddings else self._source.take("head", embedding.shape)
        # A tied checkpoint may carry a copy of the embedding as its head.
        self._source.finish(ignorable=("lm_head.weight",) if config.tied_embeddings else ())
        ropes = (config.rope,) if config.window_rope is None else (config.rope, config.window_rope)
        last_rope = len(ropes) - 1
        return DecoderModel(
            config=config,
            groups=self._groups,
            all_weights=self._source.weights,
            embedding=embedding,
            layers=layers,
            final_norm=final_norm,
            head=Linear(head),
            ropes=tuple(rope_frequencies(rope) for rope in ropes),
            layer_ropes=tuple(last_rope if window else 0 for window in config.windows),
        )

    def _layer(self, index: int) -> DecoderLayer:
        config = self._config
        width = config.hidden_size
        return DecoderLayer(
            attention_norm=self._norm("attention_norm", width, index),
            attention=self._attention(index),
            post_attention_norm=self._norm("post_attention_norm", width, index) if config.sandwich_norms else None,
            mlp_norm=self._norm("mlp_norm", width, index),
            mlp=self._mlp(index),
            post_mlp_norm=self._norm("post_mlp_norm", width, index) if config.sandwich_norms else None,
        )

    def _attention(self, index: int) -> Attention:
        config = self._config
        query_width = config.num_heads * config.head_dim
        key_width = config.num_kv_heads * config.head_dim
        return Attention(
            query=self._linear("query", query_width, config.hidden_size, index, config.qkv_bias),
            key=self._linear("key", key_width, config.hidden_size, index, config.qkv_bias),
            value=self._linear("value", key_width, config.hidden_size, index, config.qkv_bias),
            output=self._linear("output", config.hidden_size, query_width, index, config.output_bias),
            query_norm=self._norm("query_norm", config.head_dim, index) if config.query_key_norms else None,
            key_norm=self._norm("key_norm", config.head_dim, index) if config.query_key_norms else None,
            head_dim=config.head_dim,
            scale=config.attention_scale,
            window=config.windows[index],
            group=next(number for number, group in enumerate(self._groups) if index in group.layers),
        )

    def _mlp(self, index: int) -> GatedMLP:
        config = self._config
        return GatedMLP(
            gate=self._linear("gate", config.intermediate_size, config.hidden_size, index, config.mlp_bias),
            up=self._linear("up", config.intermediate_size, config.hidden_size, index, config.mlp_bias),
            down=self._linear("down", config.hidden_size, config.intermediate_size, index, config.mlp_bias),
            activation=config.activation,
        )

    def _linear(self, role: str, num_outputs: int, num_inputs: int, layer: int, has_bias: bool) -> Linear:
        weight = self._source.take(role, (num_outputs, num_inputs), layer)
        return Linear(weight, self._source.take(f"{role}_bias", (num_outputs,), layer) if has_bias else None)

    def _norm(self, role: str, width: int, layer: int | None) -> RMSNorm:
        weight = self._source.take(role, (width,), layer)
        return RMSNorm(weight, self._config.norm_epsilon, self._config.norm_offset)
