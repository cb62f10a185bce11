"""One door for GGUF files, safetensors files and Hugging Face folders; no code of a model is ever run."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
from safetensors.numpy import save

from pagoda.core.errors import ModelFileError, ModelNotFound
from pagoda.weights.checkpoint import open_checkpoint
from pagoda.weights.safetensors import INDEX_NAME

WEIGHTS = {"w": np.arange(6, dtype=np.float32).reshape(2, 3)}


def write_gguf(path: Path, num_parts: int = 1) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    if num_parts > 1:
        writer.add_uint16("split.count", num_parts)
    for name, values in WEIGHTS.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_folder(folder: Path, config: str = '{"model_type": "llama"}') -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(config)
    (folder / "model.safetensors").write_bytes(save(WEIGHTS))
    return folder


# A store may keep a GGUF file under a digest, so the name need not end in .gguf.
@pytest.mark.parametrize("name", ["model.gguf", "0123abcd"])
def test_a_gguf_file_is_opened_by_what_it_holds(name: str, tmp_path: Path) -> None:
    with open_checkpoint(write_gguf(tmp_path / name)) as checkpoint:
        assert checkpoint.kind == "gguf"
        assert checkpoint.config["general.architecture"] == "llama"
        assert checkpoint.names == ("w",)
        np.testing.assert_array_equal(checkpoint.tensor("w").to_float32(), WEIGHTS["w"])


def test_a_folder_with_one_gguf_file_is_that_file(tmp_path: Path) -> None:
    write_gguf(tmp_path / "a.gguf")
    assert open_checkpoint(str(tmp_path)).kind == "gguf"
    write_gguf(tmp_path / "b.gguf")
    with pytest.raises(ModelFileError, match="2 GGUF files"):
        open_checkpoint(tmp_path)


def test_a_part_of_a_split_gguf_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="one part of a split model"):
        open_checkpoint(write_gguf(tmp_path / "a.gguf", num_parts=3))


def test_a_folder_and_its_file_give_the_same_weights(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "model")
    for path in (folder, folder / "model.safetensors"):
        with open_checkpoint(path) as checkpoint:
            assert (checkpoint.kind, checkpoint.config) == ("huggingface", {"model_type": "llama"})
            assert checkpoint.names == ("w",)
            assert "w" in checkpoint
            np.testing.assert_array_equal(checkpoint.tensor("w").to_float32(), WEIGHTS["w"])


def test_a_sharded_folder_is_opened_by_its_index(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "model")
    (folder / "model.safetensors").rename(folder / "part.safetensors")
    (folder / "other.safetensors").write_bytes(b"never opened")
    (folder / INDEX_NAME).write_text(json.dumps({"weight_map": {"w": "part.safetensors"}}))
    assert open_checkpoint(folder).tensor("w").shape == (2, 3)


def test_several_files_need_an_index_or_the_usual_name(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "model")
    (folder / "adapter.safetensors").write_bytes(b"never opened")
    assert open_checkpoint(folder).names == ("w",)
    (folder / "model.safetensors").rename(folder / "weights.safetensors")
    with pytest.raises(ModelFileError, match="2 .safetensors files and no model.safetensors.index.json"):
        open_checkpoint(folder)


def test_a_link_out_of_a_folder_is_refused_but_one_that_is_named_is_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes(save(WEIGHTS))
    folder = write_folder(tmp_path / "model")
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to(tmp_path / "outside")
    with pytest.raises(ModelFileError, match="leads out of the folder"):
        open_checkpoint(folder)
    assert open_checkpoint(folder / "model.safetensors").names == ("w",)


def test_a_tensor_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="no tensor named 'other'"):
        open_checkpoint(write_folder(tmp_path / "model")).tensor("other")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pth", "model.ckpt"])
def test_pickled_weights_are_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / name).write_bytes(b"\x80\x04.")
    for path in (tmp_path, tmp_path / name):
        with pytest.raises(ModelFileError, match="can run code when read and are refused; use safetensors or GGUF"):
            open_checkpoint(path)


def test_code_in_a_model_folder_is_never_run(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    config = {"model_type": "llama", "auto_map": {"AutoConfig": "configuration_x.X", "AutoModel": "modeling_x.X"}}
    folder = write_folder(tmp_path / "model", json.dumps(config))
    for module in ("configuration_x", "modeling_x", "__init__", "config", "sitecustomize"):
        (folder / f"{module}.py").write_text(f"open({str(canary)!r}, 'w')\nX = object\n")
    with open_checkpoint(folder) as checkpoint:
        checkpoint.tensor("w").to_float32()
    assert not canary.exists()
    assert "modeling_x" not in sys.modules
    assert str(folder) not in sys.path


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="no such file"):
        open_checkpoint(tmp_path / "missing.gguf")
    with pytest.raises(ModelNotFound, match="holds no model"):
        open_checkpoint(tmp_path)
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(ModelFileError, match="neither GGUF nor safetensors"):
        open_checkpoint(tmp_path / "notes.txt")


@pytest.mark.parametrize("config", ["[]", '{"a": 1, "a": 2}', "{", ""])
def test_a_false_configuration_is_refused(config: str, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="config.json"):
        open_checkpoint(write_folder(tmp_path / "model", config))


def test_weights_without_a_configuration_are_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "model")
    (folder / "config.json").unlink()
    with pytest.raises(ModelFileError, match="no config.json"):
        open_checkpoint(folder)
