"""The random model, small: the gguf package and our own reader agree on it, and it runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest

from benchmarks.cpu.random_llama import LLAMA_1B, matrices, random_q8_0, vocabulary, write_q8_0
from pagoda import LLM, SamplingParams

SMALL = replace(LLAMA_1B, num_layers=2, hidden=64, num_heads=4, num_kv_heads=2, head_dim=16, feed_forward=128)


def test_the_published_number_of_parameters() -> None:
    """Llama 3.2 1B has 1,235,814,400; the norms are 33 vectors of 2,048."""
    assert sum(rows * columns for _, (rows, columns) in matrices(LLAMA_1B)) + 33 * 2048 == 1_235_814_400


def test_vocabulary_is_full_and_without_doubles() -> None:
    tokens, merges = vocabulary(1000)
    assert len(tokens) == len(set(tokens)) == 1000
    assert len(merges) == 1000 - 256 - 1
    known = set(tokens)
    assert all("".join(merge.split(" ")) in known for merge in merges)


def test_quants_keep_the_size_of_a_vector() -> None:
    blocks = random_q8_0((256, 512), np.random.default_rng(0))
    dense = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType.Q8_0)
    assert dense.shape == (256, 512)
    assert np.linalg.norm(dense, axis=1).mean() == pytest.approx(1.0, rel=0.02)


def test_a_small_one_runs(tmp_path: Path) -> None:
    path = tmp_path / "random.gguf"
    write_q8_0(path, replace(SMALL, vocab_size=512))
    names = {tensor.name for tensor in gguf.GGUFReader(path).tensors}
    assert "token_embd.weight" in names and "output.weight" not in names
    with LLM(path, max_model_len=64) as llm:
        params = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True)
        assert len(llm.generate("hello", params, use_tqdm=False)[0].outputs[0].token_ids) == 4
