from __future__ import annotations

import pytest
from transformers import Qwen2Config, Qwen2ForCausalLM

from tests.models.parity import check_parity
from tests.models.tiny import SMALL, randomize


@pytest.mark.parametrize("tied", [False, True])
def test_logits_equal_those_of_transformers(tied, tmp_path):
    reference = randomize(Qwen2ForCausalLM(Qwen2Config(**SMALL, tie_word_embeddings=tied)))
    (group,) = check_parity(reference, tmp_path).cache_groups()
    assert group.kind == "full"


def test_upper_layers_with_a_window(tmp_path):
    config = Qwen2Config(**SMALL, use_sliding_window=True, sliding_window=9, max_window_layers=1)
    groups = check_parity(randomize(Qwen2ForCausalLM(config)), tmp_path).cache_groups()
    assert [(group.kind, group.layers, group.window) for group in groups] == [
        ("full", (0,), 0),
        ("window", (1, 2), 9),
    ]
