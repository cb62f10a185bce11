from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pagoda.models import random_model
from pagoda.models.random_weights import RandomWeight
from pagoda.weights.checkpoint import open_configuration
from pagoda.weights.tensor import QuantizedTensor
from tests.fakes.config_folder import write_config
from tests.models.tiny import SMALL


def test_a_configuration_alone_makes_a_model(tmp_path: Path) -> None:
    config = {**SMALL, "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu"}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with open_configuration(tmp_path) as checkpoint:
        model = random_model(checkpoint)
    assert {weight.format for weight in model.weights()} == {"RANDOM"}
    assert sum(weight.shape == (SMALL["hidden_size"],) for weight in model.weights()) == 2 * model.config.num_layers + 1


def test_numbers_are_small_and_norms_are_ones() -> None:
    matrix = RandomWeight((64, 32)).to_float32()
    assert 0.015 < matrix.std() < 0.025
    np.testing.assert_array_equal(RandomWeight((64, 32)).rows_to_float32(np.array([3])), matrix[[3]])
    assert (RandomWeight((8,)).to_float32() == 1).all()


def test_a_format_of_files_has_bytes_of_the_same_numbers() -> None:
    for format_name in ("F32", "BF16"):
        weight = RandomWeight((6, 32), format_name)
        tensor = QuantizedTensor("w", format_name, weight.shape, weight.raw.reshape(6, -1))
        np.testing.assert_array_equal(tensor.to_float32(), weight.to_float32())
    with pytest.raises(NotImplementedError):
        RandomWeight((6, 32)).raw.tobytes()


def test_matrices_alone_have_the_format(tmp_path: Path) -> None:
    with open_configuration(write_config(tmp_path)) as checkpoint:
        model = random_model(checkpoint, "BF16")
    assert {(len(weight.shape), weight.format) for weight in model.weights()} == {(1, "F32"), (2, "BF16")}
