"""Which tensor of a file plays which role. `{layer}` stands for the number of the layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class WeightNames:
    """`ignorable` are shell patterns of tensors that carry nothing a forward pass needs."""

    roles: Mapping[str, str]
    ignorable: tuple[str, ...] = ()

    def with_roles(self, **roles: str) -> WeightNames:
        return replace(self, roles={**self.roles, **roles})

    def name(self, role: str, layer: int | None) -> str:
        template = self.roles[role]
        return template if layer is None else template.format(layer=layer)


HUGGINGFACE_NAMES = WeightNames(
    roles={
        "embedding": "model.embed_tokens.weight",
        "final_norm": "model.norm.weight",
        "head": "lm_head.weight",
        "attention_norm": "model.layers.{layer}.input_layernorm.weight",
        "query": "model.layers.{layer}.self_attn.q_proj.weight",
        "query_bias": "model.layers.{layer}.self_attn.q_proj.bias",
        "query_norm": "model.layers.{layer}.self_attn.q_norm.weight",
        "key": "model.layers.{layer}.self_attn.k_proj.weight",
        "key_bias": "model.layers.{layer}.self_attn.k_proj.bias",
        "key_norm": "model.layers.{layer}.self_attn.k_norm.weight",
        "value": "model.layers.{layer}.self_attn.v_proj.weight",
        "value_bias": "model.layers.{layer}.self_attn.v_proj.bias",
        "output": "model.layers.{layer}.self_attn.o_proj.weight",
        "output_bias": "model.layers.{layer}.self_attn.o_proj.bias",
        "mlp_norm": "model.layers.{layer}.post_attention_layernorm.weight",
        "gate": "model.layers.{layer}.mlp.gate_proj.weight",
        "gate_bias": "model.layers.{layer}.mlp.gate_proj.bias",
        "up": "model.layers.{layer}.mlp.up_proj.weight",
        "up_bias": "model.layers.{layer}.mlp.up_proj.bias",
        "down": "model.layers.{layer}.mlp.down_proj.weight",
        "down_bias": "model.layers.{layer}.mlp.down_proj.bias",
    },
    # Old checkpoints store the rope frequencies, which follow from the configuration.
    ignorable=("model.layers.*.self_attn.rotary_emb.inv_freq",),
)

GGUF_NAMES = WeightNames(
    roles={
        "embedding": "token_embd.weight",
        "final_norm": "output_norm.weight",
        "head": "output.weight",
        "attention_norm": "blk.{layer}.attn_norm.weight",
        "query": "blk.{layer}.attn_q.weight",
        "query_bias": "blk.{layer}.attn_q.bias",
        "query_norm": "blk.{layer}.attn_q_norm.weight",
        "key": "blk.{layer}.attn_k.weight",
        "key_bias": "blk.{layer}.attn_k.bias",
        "key_norm": "blk.{layer}.attn_k_norm.weight",
        "value": "blk.{layer}.attn_v.weight",
        "value_bias": "blk.{layer}.attn_v.bias",
        "output": "blk.{layer}.attn_output.weight",
        "output_bias": "blk.{layer}.attn_output.bias",
        "post_attention_norm": "blk.{layer}.post_attention_norm.weight",
        "mlp_norm": "blk.{layer}.ffn_norm.weight",
        "gate": "blk.{layer}.ffn_gate.weight",
        "gate_bias": "blk.{layer}.ffn_gate.bias",
        "up": "blk.{layer}.ffn_up.weight",
        "up_bias": "blk.{layer}.ffn_up.bias",
        "down": "blk.{layer}.ffn_down.weight",
        "down_bias": "blk.{layer}.ffn_down.bias",
        "post_mlp_norm": "blk.{layer}.post_ffw_norm.weight",
    },
    # The divisors of the rope frequencies are read with the configuration.
    ignorable=("rope_freqs.weight",),
)
