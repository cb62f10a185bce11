from __future__ import annotations

import pytest

from pagoda.core.errors import ModelFileError
from pagoda.models import gemma3, llama, mistral, qwen2, qwen3
from pagoda.models.config import ModelConfig
from pagoda.models.config_reader import ConfigReader
from pagoda.models.family import Family
from pagoda.models.registry import FAMILIES

# As published, before transformers wrote rope_parameters.
SMOLLM2 = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "hidden_act": "silu",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "max_position_embeddings": 8192,
    "mlp_bias": False,
    "num_attention_heads": 9,
    "num_hidden_layers": 30,
    "num_key_value_heads": 3,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "rope_theta": 100000,
    "tie_word_embeddings": True,
    "vocab_size": 49152,
}


def read(family: Family, config: dict) -> ModelConfig:
    return family.read_huggingface(ConfigReader(config, "config.json"))


def test_a_published_configuration():
    config = read(llama.FAMILY, SMOLLM2)
    assert (config.head_dim, config.rope.theta, config.attention_scale) == (64, 100_000.0, 0.125)
    assert config.tied_embeddings and config.windows == (0,) * 30


def test_the_window_of_qwen2_counts_only_where_it_is_switched_on():
    windowed = SMOLLM2 | {"sliding_window": 4096, "max_window_layers": 28}
    assert set(read(qwen2.FAMILY, windowed | {"use_sliding_window": False}).windows) == {0}
    assert read(qwen2.FAMILY, windowed | {"use_sliding_window": True}).windows == (0,) * 28 + (4096,) * 2
    assert set(read(mistral.FAMILY, windowed).windows) == {4096}


def test_qwen3_has_heads_of_128_unless_it_says_otherwise():
    assert read(qwen3.FAMILY, SMOLLM2).head_dim == 128
    assert read(qwen3.FAMILY, SMOLLM2 | {"head_dim": 64}).head_dim == 64


def test_gemma3_reads_a_configuration_that_leaves_out_its_defaults():
    config = read(gemma3.FAMILY, {"hidden_size": 2560, "num_hidden_layers": 34, "sliding_window": 1024})
    assert (config.head_dim, config.num_heads, config.num_kv_heads, config.vocab_size) == (256, 8, 4, 262_208)
    assert config.tied_embeddings and config.windows[:6] == (1024,) * 5 + (0,)
    assert config.window_rope is not None
    assert (config.rope.theta, config.window_rope.theta) == (1e6, 1e4)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "rope_type = 'dynamic'"),
        ({"rope_scaling": {"type": "longrope", "factor": 2.0}}, "type = 'longrope'"),
        ({"rope_scaling": {"type": "linear", "factor": "2"}}, "factor"),
        ({"rope_scaling": [1]}, "rope_scaling"),
        ({"rope_parameters": {"rope_type": "llama3", "factor": 8.0}}, "low_freq_factor is missing"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config"),
        ({"attention_bias": "yes"}, "attention_bias"),
        ({"num_attention_heads": 0}, "num_attention_heads"),
        ({"num_key_value_heads": 2}, "9 query heads"),
        ({"num_hidden_layers": 10**6}, "num_hidden_layers"),
        ({"hidden_size": 8}, "head_dim"),
        ({"vocab_size": None}, "vocab_size is missing"),
        ({"rms_norm_eps": -1e-5}, "rms_norm_eps"),
        ({"rope_theta": 1e300}, "rope_theta"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(change, named):
    with pytest.raises(ModelFileError, match=named):
        read(llama.FAMILY, SMOLLM2 | change)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"hidden_activation": "relu"}, "hidden_activation"),
        ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ({"layer_types": ["full_attention"]}, "layer_types"),
        ({"layer_types": ["full_attention"] * 25 + ["linear_attention"]}, "linear_attention"),
    ],
)
def test_gemma3_refuses_by_name(change, named):
    with pytest.raises(ModelFileError, match=named):
        read(gemma3.FAMILY, change)


def test_every_family_reads_a_plain_configuration():
    config = {key: value for key, value in SMOLLM2.items() if key != "hidden_act"}
    for family in FAMILIES:
        assert read(family, config).family == family.name
