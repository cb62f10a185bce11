from __future__ import annotations

import json

import pytest
from transformers import Gemma3ForCausalLM, Gemma3TextConfig

from tests.models.parity import check_parity
from tests.models.tiny import SMALL, randomize

GEMMA = {**SMALL, "num_hidden_layers": 7, "head_dim": 20, "sliding_window": 6, "query_pre_attn_scalar": 15}
ROPES = {
    "full_attention": {"rope_type": "linear", "rope_theta": 50_000.0, "factor": 4.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
}
VARIANTS = {
    "tied": {},
    "untied, capped": {"tie_word_embeddings": False, "final_logit_softcapping": 3.0},
    "biases": {"attention_bias": True},
    "own layer types": {"layer_types": ["full_attention", "sliding_attention"] * 3 + ["full_attention"]},
    "scaled rope on full layers": {"rope_parameters": ROPES},
    "one key head for all": {"num_key_value_heads": 1, "sliding_window": 17},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_equal_those_of_transformers(variant, tmp_path):
    reference = randomize(Gemma3ForCausalLM(Gemma3TextConfig(**{**GEMMA, **VARIANTS[variant]})))
    check_parity(reference, tmp_path)


def test_window_and_full_layers_have_a_group_each(tmp_path):
    reference = randomize(Gemma3ForCausalLM(Gemma3TextConfig(**GEMMA)))
    groups = check_parity(reference, tmp_path).cache_groups()
    assert [(group.kind, group.layers, group.window) for group in groups] == [
        ("full", (5,), 0),
        ("window", (0, 1, 2, 3, 4, 6), 6),
    ]


def test_the_older_way_of_writing_rope_reads_the_same(tmp_path):
    """Published files have rope_theta, rope_local_base_freq and rope_scaling in place of rope_parameters."""
    reference = randomize(Gemma3ForCausalLM(Gemma3TextConfig(**GEMMA, rope_parameters=ROPES)))
    newer = check_parity(reference, tmp_path).config
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    del config["rope_parameters"], config["layer_types"]
    config |= {
        "rope_theta": 50_000.0,
        "rope_local_base_freq": 500.0,
        "rope_scaling": {"rope_type": "linear", "factor": 4.0},
        "sliding_window_pattern": 6,
    }
    path.write_text(json.dumps(config))

    from pagoda.models import read_config
    from pagoda.weights.checkpoint import open_checkpoint

    assert read_config(open_checkpoint(tmp_path)) == newer
