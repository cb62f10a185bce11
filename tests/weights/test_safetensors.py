"""The safetensors reader: what the safetensors package writes is read back, every kind of false header is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save
from safetensors.torch import save_file

from pagoda.core.errors import ModelFileError
from pagoda.weights.safetensors import INDEX_NAME, SafetensorsFile, ShardedSafetensors
from pagoda.weights.tensor import QuantizedTensor

ENTRY = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}


def with_header(header: Any, num_data: int = 16) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(num_data)


def with_entry(**changes: Any) -> bytes:
    return with_header({"a": {**ENTRY, **changes}})


def opened(folder: Path, data: bytes) -> SafetensorsFile:
    path = folder / "model.safetensors"
    path.write_bytes(data)
    return SafetensorsFile.open(path)


SECOND = {"dtype": "U8", "shape": [4], "data_offsets": [16, 20]}
FALSE_FILES = {
    "too short": b"1234567",
    "a header of 18446744073709551615 bytes": b"\xff" * 8 + b"{}",
    "a header of 3 bytes": (3).to_bytes(8, "little") + b"{}",
    "not valid JSON": with_header(b'{"a"'),
    "expected a JSON object": with_header(b"[]"),
    "the key 'a' stands twice": with_header(b'{"a": 1, "a": 2}'),
    "the key 'dtype' stands twice": with_header(
        b'{"a": {"dtype": "F32", "dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}'
    ),
    "__metadata__ is not": with_header({"__metadata__": {"a": 1}}),
    "must have dtype, shape and data_offsets": with_header({"a": {"dtype": "F32", "shape": [4]}}),
    "nothing else": with_entry(more=1),
    "the type F4": with_entry(dtype="F4"),
    "the type ['F32']": with_entry(dtype=["F32"]),
    "not a list of whole numbers": with_entry(shape=[2, -2]),
    "has a shape or an offset that": with_entry(shape=[2.0, 2]),
    "an offset that is not": with_entry(data_offsets=[False, 16]),
    "that is not a list": with_entry(shape="22"),
    "list of whole numbers": with_entry(shape=[2**63, 2]),
    "of an impossible size": with_entry(data_offsets=[0, 8, 16]),
    "impossible size": with_entry(shape=[1] * 9),
    "a shape or offsets of an impossible": with_entry(shape=[0, 2**62, 4], data_offsets=[0, 0]),
    "takes 16 bytes": with_entry(shape=[2**40, 2**7]),
    "takes -16 bytes": with_entry(data_offsets=[16, 0]),
    "takes 12 bytes": with_entry(data_offsets=[0, 12]),
    "does not begin where": with_header({"a": {**ENTRY, "data_offsets": [4, 20]}}, 20),
    "'b' does not begin": with_header({"a": ENTRY, "b": {**SECOND, "data_offsets": [12, 16]}}),
    "the tensor 'c' does not begin": with_header({"a": ENTRY, "c": {**SECOND, "data_offsets": [20, 24]}}, 24),
    "it may be cut short": with_header({"a": ENTRY, "b": SECOND}, 19),
    "the file at": with_header({"a": ENTRY}, 17),
    "more than 65536 tensors": with_header(b"[" + b"{}," * 65537 + b"{}]"),
}


@pytest.mark.parametrize("message", FALSE_FILES)
def test_a_false_file_is_refused(message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=re.escape(message)):
        opened(tmp_path, FALSE_FILES[message])


DTYPES = ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u1", "?"]


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    shape = draw(st.lists(st.integers(0, 5), max_size=4))
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    numbers = np.random.default_rng(draw(st.integers(0, 2**32 - 1))).integers(0, 2, (*shape, dtype.itemsize))
    return np.ascontiguousarray(numbers.astype(np.uint8)).view(dtype).reshape(shape)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    st.dictionaries(st.text(max_size=10).filter(lambda name: name != "__metadata__"), arrays(), min_size=1, max_size=5),
    st.none() | st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
)
def test_what_the_safetensors_package_writes_is_read_back(
    tmp_path: Path, tensors: dict[str, np.ndarray], metadata: dict[str, str] | None
) -> None:
    with opened(tmp_path, save(tensors, metadata=metadata)) as file:
        assert dict(file.metadata) == (metadata or {})
        assert set(file.tensors) == set(tensors)
        for name, expected in tensors.items():
            info = file.tensors[name]
            assert info.shape == expected.shape
            assert file.raw(name).tobytes() == expected.tobytes()
            decoded = QuantizedTensor.from_bytes(info, file.raw(name)).to_float32()
            np.testing.assert_array_equal(decoded, expected.astype(np.float32))


def test_the_narrow_floats_of_torch_are_read(tmp_path: Path) -> None:
    numbers = torch.randn(3, 8)
    types = {"BF16": torch.bfloat16, "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2}
    tensors = {name: numbers.to(dtype) for name, dtype in types.items()}
    save_file(tensors, tmp_path / "model.safetensors")
    with SafetensorsFile.open(tmp_path / "model.safetensors") as file:
        for name, expected in tensors.items():
            assert file.tensors[name].format == name
            decoded = QuantizedTensor.from_bytes(file.tensors[name], file.raw(name)).to_float32()
            np.testing.assert_array_equal(decoded, expected.float().numpy())


def write_shards(folder: Path) -> dict[str, np.ndarray]:
    tensors = {f"w{number}": np.full((2, 3), number, dtype=np.float32) for number in range(4)}
    names = list(tensors)
    weight_map = {}
    for number, part in enumerate((names[:2], names[2:])):
        shard = f"model-{number}.safetensors"
        (folder / shard).write_bytes(save({name: tensors[name] for name in part}))
        weight_map |= dict.fromkeys(part, shard)
    write_index(folder, {"metadata": {"total_size": 96}, "weight_map": weight_map})
    return tensors


def write_index(folder: Path, index: dict[str, Any]) -> None:
    (folder / INDEX_NAME).write_text(json.dumps(index))


def test_shards_are_seen_as_one(tmp_path: Path) -> None:
    tensors = write_shards(tmp_path)
    file = ShardedSafetensors.open(tmp_path)
    assert set(file.tensors) == set(tensors)
    for name, expected in tensors.items():
        assert file.raw(name).tobytes() == expected.tobytes()
    file.close()


@pytest.mark.parametrize(
    ("weight_map", "message"),
    [
        (None, "weight_map is missing"),
        ({}, "weight_map is missing or empty"),
        ({"w0": 3}, "is not given a .safetensors file"),
        ({"w0": "weights.bin"}, "is not given a .safetensors file"),
        ({"w2": "model-0.safetensors"}, "the tensor 'w2' is not in model-0.safetensors"),
        ({"w0": "../model-0.safetensors"}, "is not the name of a file in the folder"),
        ({"w0": "..\\model-0.safetensors"}, "is not the name of a file in the folder"),
        ({"w0": "/model-0.safetensors"}, "is not the name of a file in the folder"),
        ({"w0": "\0.safetensors"}, "is not the name of a file in the folder"),
        ({"w0": "link.safetensors"}, "leads out of the folder"),
        ({"w0": "loop.safetensors"}, "loop.safetensors"),
    ],
)
def test_a_false_index_is_refused(weight_map: Any, message: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    write_shards(folder)
    (tmp_path / "outside.safetensors").write_bytes((folder / "model-0.safetensors").read_bytes())
    (folder / "link.safetensors").symlink_to(tmp_path / "outside.safetensors")
    (folder / "loop.safetensors").symlink_to(folder / "loop.safetensors")
    write_index(folder, {"weight_map": weight_map})
    with pytest.raises(ModelFileError, match=re.escape(message)):
        ShardedSafetensors.open(folder)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    write_index(tmp_path, {"weight_map": {"w0": "model-7.safetensors"}})
    with pytest.raises(ModelFileError, match="model-7.safetensors, which is not in the folder"):
        ShardedSafetensors.open(tmp_path)


def test_links_into_the_blobs_of_a_hugging_face_cache_are_followed(tmp_path: Path) -> None:
    snapshot, blobs = tmp_path / "models--a--b" / "snapshots" / "1234", tmp_path / "models--a--b" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    tensors = write_shards(snapshot)
    for number, path in enumerate(list(snapshot.iterdir())):
        path.rename(blobs / str(number))
        path.symlink_to(Path("../../blobs") / str(number))
    assert set(ShardedSafetensors.open(snapshot).tensors) == set(tensors)
