"""Descriptions of files written by independent packages, and of the real models."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pagoda.weights.description import describe_model


def write_gguf(path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_block_count(2)
    writer.add_head_count(4)
    writer.add_head_count_kv([2, 1])
    writer.add_embedding_length(32)
    writer.add_context_length(128)
    writer.add_token_list(["a", "b", "c"])
    writer.add_tensor("token_embd.weight", np.zeros((3, 32), np.float32))
    writer.add_tensor("output_norm.weight", np.zeros(32, np.float32))
    writer.add_tensor("output.weight", np.zeros((100, 32), np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_gguf_file(tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf")
    description = describe_model(tmp_path / "tiny.gguf")
    assert (description.architecture, description.num_layers, description.num_heads) == ("llama", 2, 4)
    assert description.num_kv_heads == 2  # the largest, where each layer has its own
    assert (description.embedding_length, description.context_length, description.vocabulary_size) == (32, 128, 3)
    assert description.num_parameters == 3 * 32 + 32 + 100 * 32
    assert description.num_tensors == {"F32": 2, "F16": 1}
    assert description.quantization == "F16"


def test_a_folder(tmp_path: Path) -> None:
    numpy_io = pytest.importorskip("safetensors.numpy")
    config = {"model_type": "qwen3", "num_hidden_layers": 3, "vocab_size": 11, "hidden_size": True}
    (tmp_path / "config.json").write_text(json.dumps(config))
    numpy_io.save_file({"embedding": np.zeros((11, 4), np.float16)}, tmp_path / "model.safetensors")
    description = describe_model(tmp_path)
    assert (description.architecture, description.num_layers, description.vocabulary_size) == ("qwen3", 3, 11)
    assert (description.num_heads, description.embedding_length) == (None, None)  # absent, and not a number
    assert (description.num_parameters, description.quantization) == (44, "F16")


def test_the_default_model(smollm2_path: Path) -> None:
    description = describe_model(smollm2_path)
    assert description.num_tensors == {"Q4_1": 210, "F32": 61, "Q8_0": 1}
    assert (description.num_layers, description.num_heads, description.num_kv_heads) == (30, 9, 3)
    assert (description.context_length, description.vocabulary_size) == (8192, 49152)
    assert (description.num_parameters, description.quantization) == (134_515_008, "Q4_1")
