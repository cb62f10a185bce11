"""The fingerprint: what really computes, the same again with the same settings, another where the numbers change."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from pagoda.core.config import EngineConfig
from pagoda.core.version import own_version
from pagoda.engine.build import build_engine
from pagoda.engine.fingerprint import Backend, fingerprint_of
from pagoda.kernels.cpu.library import available_instruction_sets
from pagoda.models import load_model
from pagoda.weights.checkpoint import open_checkpoint
from tests.engine.conftest import KERNELS


def fingerprint(folder: Path, **settings: Any) -> str:
    small = {"max_num_seqs": 2, "max_num_batched_tokens": 8, "num_threads": 1, "num_pages": 32}
    engine = build_engine(EngineConfig(model=str(folder), **small | settings))
    try:
        return fingerprint_of(engine)
    finally:
        engine.close()


@pytest.mark.parametrize("kernels", KERNELS)
def test_it_says_what_was_chosen(tiny_folder: Path, kernels: str):
    chosen = ["numpy", "f32"] if kernels == "reference" else [available_instruction_sets()[0], "int8"]
    expected = ["pagoda", own_version(), "cpu", *chosen, "f32", "kv_f32"]
    *told, digest = fingerprint(tiny_folder, kernels=kernels).split("-")
    assert told == expected and len(digest) == 10 and int(digest, 16) >= 0
    assert fingerprint(tiny_folder, kernels=kernels).split("-") == [*expected, digest], "the same after a restart"


@pytest.mark.parametrize(
    "settings",
    [{"compute": "f32"}, {"kv_cache_type": "f16"}, {"kv_cache_type": "int8"}, {"block_size": 32}],
    ids=str,
)
def test_what_changes_the_numbers_changes_it(tiny_folder: Path, settings: dict[str, Any]):
    if "native" not in KERNELS:
        pytest.skip("the native kernels were not built")
    assert fingerprint(tiny_folder, **settings) != fingerprint(tiny_folder)


@pytest.mark.parametrize("settings", [{"max_num_seqs": 4}, {"num_threads": 2}, {"num_pages": 40}], ids=str)
def test_what_does_not_leaves_it(tiny_folder: Path, settings: dict[str, Any]):
    assert fingerprint(tiny_folder, **settings) == fingerprint(tiny_folder)


def test_other_weights_and_another_place(tiny_folder: Path, tmp_path: Path):
    copy = shutil.copytree(tiny_folder, tmp_path / "copy")
    assert fingerprint(copy) == fingerprint(tiny_folder)
    weights = copy / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[8 + int.from_bytes(data[:8], "little") :] = bytes(len(data) - 8 - int.from_bytes(data[:8], "little"))
    weights.write_bytes(data)
    assert fingerprint(copy) != fingerprint(tiny_folder)


def test_every_part_of_the_backend_counts(tiny_folder: Path):
    engine = build_engine(EngineConfig(model=str(tiny_folder), max_num_seqs=2, num_threads=1, num_pages=32))
    try:
        backends = [
            Backend("cpu", "avx2", "int8", "ours"),
            Backend("cpu", "avx2", "int8", "ours, rebuilt"),
            Backend("cpu", "avx2", "f32", "ours"),
            Backend("cpu", "avx512", "int8", "ours"),
            Backend("H200 NVL", "avx2", "int8", "ours"),
        ]
        found = set()
        for backend in backends:
            object.__setattr__(engine, "backend", backend)
            found.add(fingerprint_of(engine))
        assert len(found) == len(backends) and not any(" " in one for one in found)
    finally:
        engine.close()


def test_a_gpus_backend_names_device_compute_and_libraries(tiny_folder: Path):
    pytest.importorskip("triton")
    from pagoda.executor.cuda.build import CudaBuilder

    with open_checkpoint(tiny_folder) as checkpoint:
        model = load_model(checkpoint)
        names = [CudaBuilder(model, dtype, device="cpu").names() for dtype in ("auto", "bfloat16")]
        in_bytes = CudaBuilder(model, "bfloat16", "fp8", device="cpu").names()
        deterministic = CudaBuilder(model, "auto", device="cpu", deterministic=True).names()
        del model
    assert [name[:3] for name in (*names, in_bytes)] == [("cpu", "triton", kind) for kind in ("f32", "bf16", "fp8")]
    assert "torch 2." in names[0][3] and "triton 3." in names[0][3]
    assert deterministic[1] == "triton_deterministic" and deterministic[::2] == names[0][::2]
