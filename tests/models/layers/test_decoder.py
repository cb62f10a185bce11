from __future__ import annotations

from dataclasses import replace

import pytest

from pagoda.core.errors import ModelFileError
from pagoda.models.config import ModelConfig, RopeConfig
from pagoda.models.layers.decoder import group_layers

CONFIG = ModelConfig(
    family="llama",
    vocab_size=10,
    hidden_size=8,
    intermediate_size=8,
    num_layers=4,
    num_heads=4,
    num_kv_heads=2,
    head_dim=2,
    max_positions=16,
    norm_epsilon=1e-6,
    tied_embeddings=True,
    windows=(0, 0, 0, 0),
    rope=RopeConfig(10_000.0, 2),
    attention_scale=1.0,
)


@pytest.mark.parametrize(
    ("windows", "groups"),
    [
        ((0, 0, 0, 0), [("full", (0, 1, 2, 3), 0)]),
        ((8, 8, 8, 8), [("window", (0, 1, 2, 3), 8)]),
        ((8, 0, 8, 0), [("full", (1, 3), 0), ("window", (0, 2), 8)]),
        ((8, 4, 8, 0), [("full", (3,), 0), ("window", (1,), 4), ("window", (0, 2), 8)]),
    ],
)
def test_layers_with_the_same_window_share_a_group(windows, groups):
    made = group_layers(replace(CONFIG, windows=windows))
    assert [(group.kind, group.layers, group.window) for group in made] == groups
    assert {(group.num_kv_heads, group.head_dim) for group in made} == {(2, 2)}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"num_kv_heads": 3}, "cannot share 3"),
        ({"windows": (0,)}, "one window for each layer"),
        ({"head_dim": 1}, "rotary width exceeds the head width 1"),
    ],
)
def test_a_configuration_that_contradicts_itself_is_refused(change, named):
    with pytest.raises(ModelFileError, match=named):
        replace(CONFIG, **change)


def test_an_odd_rotary_width_is_refused():
    with pytest.raises(ModelFileError, match="must be even"):
        RopeConfig(10_000.0, 3)
