from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from pagoda.kernels.base import RopeFrequencies
from pagoda.models.config import DivisorScaling, RopeConfig
from pagoda.models.config_reader import ConfigReader
from pagoda.models.huggingface_config import read_rope_parameters
from pagoda.models.layers.rope import rope_frequencies

CASES = {
    "llama 3.1": {
        "rope_type": "llama3",
        "rope_theta": 500_000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    "llama 3.2": {
        "rope_type": "llama3",
        "rope_theta": 500_000.0,
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    "linear": {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 2.5},
    "yarn": {
        "rope_type": "yarn",
        "rope_theta": 1_000_000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 32_768,
    },
    "yarn, all its settings": {
        "rope_type": "yarn",
        "rope_theta": 10_000.0,
        "factor": 40.0,
        "original_max_position_embeddings": 4096,
        "beta_fast": 16.0,
        "beta_slow": 2.0,
        "mscale": 0.7,
        "mscale_all_dim": 1.3,
    },
    "yarn, given factor": {
        "rope_type": "yarn",
        "rope_theta": 10_000.0,
        "factor": 2.0,
        "original_max_position_embeddings": 4096,
        "attention_factor": 1.5,
    },
}


def read(parameters: dict, head_dim: int, max_positions: int) -> RopeFrequencies:
    section = ConfigReader(parameters, "config.json: rope_parameters")
    return rope_frequencies(read_rope_parameters(section, head_dim, max_positions))


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("case", CASES)
def test_frequencies_equal_those_of_transformers(case, head_dim):
    config = LlamaConfig(
        hidden_size=4 * head_dim,
        num_attention_heads=4,
        max_position_embeddings=131_072,
        rope_parameters=dict(CASES[case]),
    )
    expected, magnitude = ROPE_INIT_FUNCTIONS[CASES[case]["rope_type"]](config, torch.device("cpu"))
    actual = read(CASES[case], head_dim, 131_072)
    assert actual.inverse_frequencies.dtype == np.float32
    np.testing.assert_allclose(actual.inverse_frequencies, expected.numpy(), rtol=2e-6)
    assert actual.magnitude == pytest.approx(magnitude)


def test_plain_frequencies():
    actual = rope_frequencies(RopeConfig(10_000.0, 4)).inverse_frequencies
    np.testing.assert_allclose(actual, [1.0, 0.01], rtol=1e-7)


def test_divisors_divide():
    config = RopeConfig(10_000.0, 4, DivisorScaling((1.0, 8.0)), interleaved=True)
    actual = rope_frequencies(config)
    assert actual.interleaved
    np.testing.assert_allclose(actual.inverse_frequencies, [1.0, 0.01 / 8], rtol=1e-7)
