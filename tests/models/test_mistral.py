from __future__ import annotations

import pytest
from transformers import MistralConfig, MistralForCausalLM

from tests.models.parity import check_parity
from tests.models.tiny import SMALL, randomize


@pytest.mark.parametrize("window", [1, 6, 16, 1000])
def test_logits_with_a_window_equal_those_of_transformers(window, tmp_path):
    reference = randomize(MistralForCausalLM(MistralConfig(**SMALL, sliding_window=window, head_dim=16)))
    (group,) = check_parity(reference, tmp_path).cache_groups()
    assert (group.kind, group.layers, group.window) == ("window", (0, 1, 2), window)


def test_logits_without_a_window_equal_those_of_transformers(tmp_path):
    reference = randomize(MistralForCausalLM(MistralConfig(**SMALL, sliding_window=None, head_dim=16)))
    (group,) = check_parity(reference, tmp_path).cache_groups()
    assert group.kind == "full"
