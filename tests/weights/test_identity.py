"""The digest of weights: the same for the same files, another for another configuration, header or training."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from pagoda.weights.checkpoint import open_checkpoint, open_configuration
from pagoda.weights.identity import weights_digest


def digest(path: Path) -> str:
    with open_checkpoint(path) as checkpoint:
        return weights_digest(checkpoint)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    generator = np.random.default_rng(1)
    tensors = {f"layer.{number}": generator.normal(size=(32, 32)).astype(np.float32) for number in range(200)}
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"hidden_size": 32, "rope_theta": 1e4}))
    return folder


def test_it_is_the_files_that_count_and_not_where_they_lie(folder: Path, tmp_path: Path):
    copy = shutil.copytree(folder, tmp_path / "elsewhere")
    assert digest(folder) == digest(folder) == digest(copy) and len(digest(folder)) == 64


def test_another_configuration(folder: Path):
    before = digest(folder)
    (folder / "config.json").write_text(json.dumps({"rope_theta": 1e4, "hidden_size": 32}))
    assert digest(folder) == before, "the order of keys says nothing"
    (folder / "config.json").write_text(json.dumps({"hidden_size": 32, "rope_theta": 1e6}))
    assert digest(folder) != before


def test_another_training_of_the_same_shapes(folder: Path):
    before = digest(folder)
    tensors = {name: tensor * np.float32(1.001) for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(tensors, folder / "model.safetensors")
    assert digest(folder) != before


def test_another_header(folder: Path):
    before = digest(folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["layer.last"] = tensors.pop("layer.7")
    save_file(tensors, folder / "model.safetensors")
    assert digest(folder) != before


def test_a_folder_without_weights_is_known_by_its_configuration(folder: Path):
    (folder / "model.safetensors").unlink()
    first = weights_digest(open_configuration(folder))
    (folder / "config.json").write_text(json.dumps({"hidden_size": 64}))
    assert weights_digest(open_configuration(folder)) != first
