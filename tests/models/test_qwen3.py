from __future__ import annotations

import pytest
from transformers import Qwen3Config, Qwen3ForCausalLM

from tests.models.parity import check_parity
from tests.models.tiny import SMALL, randomize

VARIANTS = {
    "head width of its own": {"head_dim": 20},
    "tied": {"head_dim": 12, "tie_word_embeddings": True},
    "biases": {"head_dim": 12, "attention_bias": True},
    "window": {"head_dim": 12, "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 2},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_equal_those_of_transformers(variant, tmp_path):
    reference = randomize(Qwen3ForCausalLM(Qwen3Config(**{**SMALL, **VARIANTS[variant]})))
    assert check_parity(reference, tmp_path).config.query_key_norms
