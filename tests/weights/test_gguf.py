"""The GGUF reader: what the gguf package writes is read back, and every kind of false header is refused by name."""

from __future__ import annotations

import os
import re
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pagoda.core.errors import ModelFileError, ModelNotFound
from pagoda.weights.gguf import GGUFFile
from pagoda.weights.quantization import GGUF_FORMATS
from pagoda.weights.tensor import QuantizedTensor

U8, U32, BOOL, STRING, ARRAY, U64 = 0, 4, 7, 8, 9, 10
START = b"GGUF\x03\0\0\0"


def string(text: str | bytes) -> bytes:
    encoded = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(encoded)) + encoded


def pair(key: str | bytes, kind: int, value: bytes) -> bytes:
    return string(key) + struct.pack("<I", kind) + value


def array(kind: int, count: int, elements: bytes = b"") -> bytes:
    return struct.pack("<IQ", kind, count) + elements


def tensor(name: str, dims: tuple[int, ...] = (32,), kind: int = 0, offset: int = 0) -> bytes:
    return string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def with_counts(num_tensors: int, num_pairs: int, rest: bytes = b"", start: bytes = START) -> bytes:
    return start + struct.pack("<QQ", num_tensors, num_pairs) + rest


def with_pairs(*pairs: bytes) -> bytes:
    return with_counts(0, len(pairs), b"".join(pairs))


def with_tensors(*tensors: bytes, num_data: int = 256) -> bytes:
    head = with_counts(len(tensors), 0, b"".join(tensors))
    return head + bytes(-len(head) % 32 + num_data)


def opened(folder: Path, data: bytes) -> GGUFFile:
    path = folder / "model.gguf"
    path.write_bytes(data)
    return GGUFFile.open(path)


FALSE_HEADERS = {
    "not a GGUF file": with_counts(0, 0, start=b"GGML\x03\0\0\0"),
    "version 1;": with_counts(0, 0, start=b"GGUF\x01\0\0\0"),
    "version 4;": with_counts(0, 0, start=b"GGUF\x04\0\0\0"),
    "big-endian": with_counts(0, 0, start=b"GGUF\0\0\0\x03"),
    "the header (8 bytes at 24) goes past the end of the file at 24": with_counts(0, 1),
    "18446744073709551615 tensors": with_counts(2**64 - 1, 0),
    "9223372036854775807 keys": with_counts(0, 2**63 - 1),
    "a key of 9223372036854775808 bytes": with_counts(0, 1, struct.pack("<Q", 2**63)),
    "a key is not UTF-8": with_pairs(pair(b"\xff", U8, b"\0")),
    "not printable ASCII": with_pairs(pair("a\nb", U8, b"\0")),
    "the key a stands twice": with_pairs(pair("a", U8, b"\0"), pair("a", U8, b"\0")),
    "a has the unknown type 13": with_pairs(pair("a", 13, b"\0")),
    "a has the unknown type 99": with_pairs(pair("a", ARRAY, array(99, 0))),
    "a is an array of arrays": with_pairs(pair("a", ARRAY, array(ARRAY, 1, array(U8, 0)))),
    "(36893488147419103232 bytes": with_pairs(pair("a", ARRAY, array(U64, 2**62))),
    "strings of the header over the limit": with_pairs(pair("a", ARRAY, array(STRING, 2**32))),
    "a goes past the end": with_pairs(pair("a", ARRAY, array(STRING, 2, string("x")))),
    "general.alignment is not a power": with_pairs(pair("general.alignment", U32, struct.pack("<I", 24))),
    "general.alignment is not": with_pairs(pair("general.alignment", STRING, string("32"))),
    "the tensor 'a' stands twice": with_tensors(tensor("a"), tensor("a", offset=128)),
    "has 0 axes": with_tensors(tensor("a", ())),
    "has 5 axes": with_tensors(tensor("a", (1, 1, 1, 1, 1))),
    "length zero": with_tensors(tensor("a", (32, 0))),
    "type 77 (unknown)": with_tensors(tensor("a", kind=77)),
    "type 16 (IQ2_XXS)": with_tensors(tensor("a", (256,), kind=16)),
    "not whole blocks of 32 (Q4_0)": with_tensors(tensor("a", (33,), kind=2)),
    "not aligned to 32": with_tensors(tensor("a", offset=4)),
    "it may be cut short": with_tensors(tensor("a"), num_data=127),
    f"ends at byte {2**121 + 96}": with_tensors(tensor("a", (2**60, 2**59))),
    f"ends at byte {2**64 + 160}": with_tensors(tensor("a", offset=2**64 - 32)),
    "the tensor 'b' overlaps": with_tensors(tensor("a"), tensor("b", offset=96)),
    "a tensor's name of 257 bytes": with_tensors(tensor("a" * 257)),
}


@pytest.mark.parametrize("message", FALSE_HEADERS)
def test_a_false_header_is_refused(message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=re.escape(message)):
        opened(tmp_path, FALSE_HEADERS[message])


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (BOOL, b"\x02", "neither 0 nor 1"),
        (ARRAY, array(BOOL, 2, b"\x01\x80"), "neither 0 nor 1"),
        (STRING, string(b"ab\xff"), "not UTF-8 text (invalid start byte at byte 2)"),
        (ARRAY, array(STRING, 2, string("a") + string(b"\xe2\x82")), "not UTF-8 text"),
        (STRING, string("x" * 2**20 + "x"), "a string over the limit"),
    ],
)
def test_a_false_value_is_refused_when_it_is_asked_for(kind: int, value: bytes, message: str, tmp_path: Path) -> None:
    file = opened(tmp_path, with_pairs(pair("key", kind, value), pair("other", U8, b"\x07")))
    with pytest.raises(ModelFileError, match=re.escape(message)):
        file.metadata["key"]
    assert file.metadata["other"] == 7


def test_a_name_that_is_not_there_is_a_key_error(tmp_path: Path) -> None:
    file = opened(tmp_path, with_tensors(tensor("a")))
    assert "a" not in file.metadata
    assert file.metadata.get("a") is None
    with pytest.raises(KeyError):
        file.raw("b")


def test_what_is_not_a_file_of_some_length_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound):
        GGUFFile.open(tmp_path / "missing.gguf")
    with pytest.raises(ModelFileError, match="not a regular file"):
        GGUFFile.open(tmp_path)
    with pytest.raises(ModelFileError, match="empty"):
        opened(tmp_path, b"")
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(ModelFileError, match="not a regular file"):
        GGUFFile.open(tmp_path / "pipe.gguf")


def test_views_are_read_only_and_outlive_the_file(tmp_path: Path) -> None:
    with opened(tmp_path, with_tensors(tensor("a"))) as file:
        raw = file.raw("a")
    assert raw.sum() == 0
    with pytest.raises(ValueError, match="read-only"):
        raw[0] = 1
    del raw
    file.close()
    with pytest.raises(ValueError, match="closed"):
        file.raw("a")


def test_version_2_and_a_file_without_tensors_are_read(tmp_path: Path) -> None:
    data = with_pairs(pair("general.alignment", U32, struct.pack("<I", 1 << 30)), pair("n", U8, b"\x05"))
    file = opened(tmp_path, data.replace(START, b"GGUF\x02\0\0\0"))
    assert dict(file.metadata) == {"general.alignment": 1 << 30, "n": 5}
    assert not file.tensors


def test_a_header_may_not_fill_the_file(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(with_pairs(pair("a", ARRAY, array(U8, 2**29))))
    # A file of a gigabyte, most of it a hole: were the header walked to its end, it would be in bounds.
    os.truncate(path, 2**30)
    with pytest.raises(ModelFileError, match="past the limit of 134217728 bytes for a header"):
        GGUFFile.open(path)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["ab", "\U0001f600"])
def test_decoding_a_flood_of_strings_stays_in_its_memory(text: str, tmp_path: Path) -> None:
    data = with_pairs(pair("a", ARRAY, array(STRING, 2**20, string(text) * 2**20)))
    file = opened(tmp_path, data)
    tracemalloc.start()
    try:
        file.metadata["a"]
    except ModelFileError as error:
        assert "more memory" in str(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak <= len(data) + (64 << 20)


NUMBERS = {
    gguf.GGUFValueType.UINT8: st.integers(0, 2**8 - 1),
    gguf.GGUFValueType.INT8: st.integers(-(2**7), 2**7 - 1),
    gguf.GGUFValueType.UINT16: st.integers(0, 2**16 - 1),
    gguf.GGUFValueType.INT16: st.integers(-(2**15), 2**15 - 1),
    gguf.GGUFValueType.UINT32: st.integers(0, 2**32 - 1),
    gguf.GGUFValueType.INT32: st.integers(-(2**31), 2**31 - 1),
    gguf.GGUFValueType.UINT64: st.integers(0, 2**64 - 1),
    gguf.GGUFValueType.INT64: st.integers(-(2**63), 2**63 - 1),
    gguf.GGUFValueType.FLOAT32: st.floats(width=32, allow_nan=False),
    gguf.GGUFValueType.FLOAT64: st.floats(allow_nan=False),
    gguf.GGUFValueType.BOOL: st.booleans(),
    gguf.GGUFValueType.STRING: st.text(max_size=20),
}
KEYS = st.text("abcdefghijklmnopqrstuvwxyz0123456789._", min_size=1, max_size=30).filter(
    lambda key: not key.startswith("general.")
)


@st.composite
def typed_values(draw: st.DrawFn) -> tuple[Any, gguf.GGUFValueType, gguf.GGUFValueType | None]:
    kind = draw(st.sampled_from(list(NUMBERS)))
    if draw(st.booleans()):
        return draw(NUMBERS[kind]), kind, None
    return draw(st.lists(NUMBERS[kind], min_size=1, max_size=8)), gguf.GGUFValueType.ARRAY, kind


@st.composite
def stored_tensors(draw: st.DrawFn) -> tuple[int, np.ndarray]:
    number = draw(st.sampled_from(list(GGUF_FORMATS)))
    axes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    axes[-1] *= GGUF_FORMATS[number].block_bytes
    seed = draw(st.integers(0, 2**32 - 1))
    return number, np.random.default_rng(seed).integers(0, 256, axes, dtype=np.uint8)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.dictionaries(KEYS, typed_values(), max_size=6), st.dictionaries(KEYS, stored_tensors(), max_size=4))
def test_what_the_gguf_package_writes_is_read_back(
    tmp_path: Path, values: dict[str, Any], tensors: dict[str, tuple[int, np.ndarray]]
) -> None:
    path = tmp_path / "written.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    for key, (value, kind, element_kind) in values.items():
        writer.add_key_value(key, value, kind, sub_type=element_kind)
    for name, (number, raw) in tensors.items():
        writer.add_tensor(name, raw, raw_dtype=gguf.GGMLQuantizationType(number))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with GGUFFile.open(path) as file:
        assert set(file.metadata) == {"general.architecture", *values}
        for key, (value, _, _) in values.items():
            read = file.metadata[key]
            assert (read.tolist() if isinstance(read, np.ndarray) else read) == value
            assert isinstance(read, np.ndarray) or type(read) is type(value)
        assert set(file.tensors) == set(tensors)
        for name, (number, raw) in tensors.items():
            info, form = file.tensors[name], GGUF_FORMATS[number]
            assert info.format == form.name
            assert info.shape == (*raw.shape[:-1], raw.shape[-1] // form.block_bytes * form.block_size)
            np.testing.assert_array_equal(file.raw(name), raw.reshape(-1))


@pytest.mark.parametrize("fixture", ["smollm2_path", "gemma3_path"])
def test_a_tensor_of_each_format_in_a_real_file_decodes_to_the_bits_of_the_gguf_package(
    fixture: str, request: pytest.FixtureRequest
) -> None:
    with GGUFFile.open(request.getfixturevalue(fixture)) as file:
        numbers = {form.name: number for number, form in GGUF_FORMATS.items()}
        # The last of each format: the first Q8_0 tensor is the whole embedding.
        for info in {info.format: info for info in file.tensors.values()}.values():
            tensor = QuantizedTensor.from_bytes(info, file.raw(info.name))
            raw = tensor.raw[:2048]
            expected = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType(numbers[info.format]))
            decoded = tensor.to_float32().reshape(len(tensor.raw), -1)[:2048]
            np.testing.assert_array_equal(decoded.view(np.uint32), expected.view(np.uint32))


@pytest.mark.slow
@pytest.mark.parametrize("fixture", ["smollm2_path", "gemma3_path"])
def test_a_real_file_reads_as_with_the_gguf_package(fixture: str, request: pytest.FixtureRequest) -> None:
    path: Path = request.getfixturevalue(fixture)
    reader = gguf.GGUFReader(path)
    with GGUFFile.open(path) as file:
        expected = {key: field for key, field in reader.fields.items() if not key.startswith("GGUF.")}
        assert list(file.metadata) == list(expected)
        for key, field in expected.items():
            value = file.metadata[key]
            assert (value.tolist() if isinstance(value, np.ndarray) else value) == field.contents()
        assert list(file.tensors) == [tensor.name for tensor in reader.tensors]
        for tensor in reader.tensors:
            info = file.tensors[tensor.name]
            assert (info.format, info.shape) == (tensor.tensor_type.name, tuple(reversed(tensor.shape.tolist())))
            np.testing.assert_array_equal(file.raw(tensor.name), np.asarray(tensor.data).view(np.uint8).reshape(-1))
            # Part of the embedding is enough; every other tensor is compared whole.
            rows = np.atleast_2d(tensor.data)[:4096]
            decoded = QuantizedTensor.from_bytes(info, file.raw(tensor.name)).to_float32().reshape(-1, info.shape[-1])
            np.testing.assert_array_equal(decoded[:4096], gguf.quants.dequantize(rows, tensor.tensor_type))
