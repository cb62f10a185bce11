from __future__ import annotations

import pytest
from transformers import LlamaConfig, LlamaForCausalLM

from tests.models.parity import check_parity
from tests.models.tiny import SMALL, randomize

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
LINEAR_ROPE = {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0}
YARN_ROPE = {
    "rope_type": "yarn",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}

VARIANTS = {
    "grouped heads": {},
    "one head each, tied": {"num_key_value_heads": 4, "tie_word_embeddings": True},
    "one key head for all": {"num_key_value_heads": 1},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "heads wider than the model": {"head_dim": 20},
    "llama3 rope": {"rope_parameters": LLAMA3_ROPE},
    "linear rope": {"rope_parameters": LINEAR_ROPE},
    "yarn rope": {"rope_parameters": YARN_ROPE},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_equal_those_of_transformers(variant, tmp_path):
    reference = randomize(LlamaForCausalLM(LlamaConfig(**{**SMALL, **VARIANTS[variant]})))
    model = check_parity(reference, tmp_path)
    (group,) = model.cache_groups()
    assert (group.kind, group.layers, group.window) == ("full", (0, 1, 2), 0)


def test_a_tied_head_is_the_embedding(tmp_path):
    reference = randomize(LlamaForCausalLM(LlamaConfig(**SMALL, tie_word_embeddings=True)))
    model = check_parity(reference, tmp_path)
    assert len(model.weights()) == 2 + 9 * 3
