"""Mutants of real headers end in a ModelFileError or in a working file: no crash, no hang, no flood of memory."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest

from pagoda.core.errors import ModelFileError
from pagoda.weights.gguf import GGUFFile
from pagoda.weights.safetensors import INDEX_NAME, SafetensorsFile
from tests.weights.gguf_surgery import read_header
from tests.weights.hostile import assert_harmless, run_batch
from tests.weights.mutants import Field, mutants, mutations
from tests.weights.small_files import sparse_copy

OPEN_GGUF = "tests.weights.hostile:open_gguf"
OPEN_SAFETENSORS = "tests.weights.hostile:open_safetensors"
SMALL_FILES = [("small_smollm2", OPEN_GGUF), ("small_gemma3", OPEN_GGUF), ("small_safetensors", OPEN_SAFETENSORS)]


@pytest.fixture(params=SMALL_FILES, ids=[fixture for fixture, _ in SMALL_FILES])
def small_file(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    fixture, target = request.param
    path = tmp_path / fixture
    path.write_bytes(request.getfixturevalue(fixture))
    return path, target


def test_mutants_of_small_files_are_harmless(small_file: tuple[Path, str]) -> None:
    report = run_batch(*small_file, seed=1, count=700)
    assert_harmless(report)
    assert report.num_refused > 300


@pytest.mark.parametrize("name", ["config.json", INDEX_NAME])
def test_mutants_of_the_json_beside_the_weights_are_harmless(
    name: str, small_safetensors: bytes, tmp_path: Path
) -> None:
    (tmp_path / "part.safetensors").write_bytes(small_safetensors)
    weight_map = dict.fromkeys(SafetensorsFile.open(tmp_path / "part.safetensors").tensors, "part.safetensors")
    (tmp_path / INDEX_NAME).write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", "hidden_size": 8, "layers": [1, 2]}))
    report = run_batch(tmp_path / name, "tests.weights.hostile:open_folder_of", seed=1, count=300)
    assert_harmless(report)
    assert report.num_refused > 30


@pytest.mark.slow
def test_many_mutants_of_small_files_are_harmless(small_file: tuple[Path, str]) -> None:
    for seed in range(2, 9):
        assert_harmless(run_batch(*small_file, seed=seed, count=1000))


@pytest.mark.slow
@pytest.mark.parametrize("fixture", ["smollm2_path", "gemma3_path"])
def test_mutants_of_full_headers_are_harmless(fixture: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    original: Path = request.getfixturevalue(fixture)
    copy = sparse_copy(original, tmp_path / original.name)
    report = run_batch(copy, OPEN_GGUF, seed=1, count=100, trace_every=20)
    assert_harmless(report)


@pytest.mark.parametrize("fixture", ["small_smollm2", "small_gemma3"])
def test_every_cut_of_a_header_is_refused(fixture: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    data: bytes = request.getfixturevalue(fixture)
    path = tmp_path / "cut.gguf"
    # Every byte near the front and of the tensor list at its end; every seventh in the vocabulary between.
    end = read_header(data).end
    for length in {*range(600), *range(600, end, 7), *range(end - 300, end)}:
        path.write_bytes(data[:length])
        with pytest.raises(ModelFileError):
            GGUFFile.open(path)


def test_mutants_are_the_same_for_the_same_seed() -> None:
    data, fields = bytes(range(256)), [Field(8, 4), Field(16, 8)]
    first, again, other = (list(islice(mutants(data, fields, seed), 200)) for seed in (1, 1, 2))
    assert first == again != other
    assert sum(mutant != data for mutant in first) > 180


def test_mutations_write_only_in_the_header() -> None:
    header, fields = bytes(range(100)), [Field(8, 4), Field(92, 8)]
    for mutation in islice(mutations(header, fields, 5), 500):
        assert all(offset + len(patch) <= len(header) for offset, patch in mutation.patches)
        assert mutation.length is None or mutation.length < len(header)
