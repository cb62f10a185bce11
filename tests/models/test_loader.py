from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from pagoda.core.errors import ModelFileError
from pagoda.kernels.reference import ReferenceOperators
from pagoda.models import Model, load_model
from pagoda.weights.checkpoint import open_checkpoint
from tests.models.tiny import SMALL

QUERY = "model.layers.1.self_attn.q_proj.weight"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    LlamaForCausalLM(LlamaConfig(**SMALL)).save_pretrained(tmp_path)
    return tmp_path


def change(folder: Path, **tensors: np.ndarray | None) -> None:
    path = folder / "model.safetensors"
    kept = load_file(path)
    for name, values in tensors.items():
        if values is None:
            del kept[name]
        else:
            kept[name] = values
    save_file(kept, path)


def load(folder: Path) -> Model:
    return load_model(open_checkpoint(folder))


def test_progress_counts_every_tensor(folder):
    seen: list[tuple[int, int]] = []
    load_model(open_checkpoint(folder), progress=lambda done, total: seen.append((done, total)))
    assert seen == [(done, 30) for done in range(1, 31)]


def test_a_missing_tensor_is_named(folder):
    change(folder, **{QUERY: None})
    with pytest.raises(ModelFileError, match=f"{QUERY} is missing"):
        load(folder)


def test_a_tensor_of_another_shape_is_named(folder):
    change(folder, **{QUERY: np.zeros((48, 47), np.float32)})
    with pytest.raises(ModelFileError, match=rf"{QUERY} has the shape \(48, 47\)"):
        load(folder)


def test_a_tensor_too_many_is_named(folder):
    change(folder, **{f"extra.{i}": np.zeros(1, np.float32) for i in range(7)})
    with pytest.raises(ModelFileError, match=r"extra\.0, .*extra\.4 and 2 more"):
        load(folder)


def test_stored_rope_frequencies_are_known_to_carry_nothing(folder):
    change(folder, **{"model.layers.0.self_attn.rotary_emb.inv_freq": np.zeros(6, np.float32)})
    load(folder)


def test_a_tied_model_may_carry_a_copy_of_its_embedding(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))
    model = load(folder)
    assert len(model.weights()) == 29
    operators = ReferenceOperators()
    hidden = np.ones((1, 48), np.float32)
    embedding = model.weights()[0].to_float32()
    np.testing.assert_allclose(model.logits(operators, hidden), hidden @ embedding.T, atol=1e-5)
