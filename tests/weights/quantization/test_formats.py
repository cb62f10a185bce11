"""Every decoder gives the bits of an independent one: the gguf package for blocks, torch for single numbers."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch

from pagoda.weights.quantization import FORMATS, GGUF_FORMATS, SAFETENSORS_FORMATS

BLOCK_FORMATS = {number: form for number, form in GGUF_FORMATS.items() if form.block_size > 1}
TORCH_TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
}


def assert_same_bits(actual: np.ndarray, expected: np.ndarray) -> None:
    assert actual.dtype == expected.dtype == np.float32
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
    number = ~np.isnan(expected)
    np.testing.assert_array_equal(actual[number].view(np.uint32), expected[number].view(np.uint32))


def random_bytes(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).integers(0, 256, shape, dtype=np.uint8)


@pytest.mark.parametrize("number", GGUF_FORMATS)
def test_name_and_block_size_are_those_of_the_gguf_package(number: int) -> None:
    kind = gguf.GGMLQuantizationType(number)
    form = GGUF_FORMATS[number]
    assert (form.name, (form.block_size, form.block_bytes)) == (kind.name, gguf.GGML_QUANT_SIZES[kind])


@pytest.mark.parametrize("number", BLOCK_FORMATS, ids=lambda number: GGUF_FORMATS[number].name)
def test_random_blocks_decode_to_the_bits_of_the_gguf_package(number: int) -> None:
    form = BLOCK_FORMATS[number]
    # More rows than one chunk holds; random bytes give zero, subnormal, infinite and NaN scales too.
    raw = random_bytes(700, 3 * form.block_bytes)
    with np.errstate(all="ignore"):
        expected = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType(number))
    assert_same_bits(form.dequantize(raw), expected)


@pytest.mark.parametrize("name", TORCH_TYPES)
def test_numbers_decode_to_those_of_torch(name: str) -> None:
    form = FORMATS[name]
    raw = np.arange(256, dtype=np.uint8) if form.block_bytes == 1 else random_bytes(512 * form.block_bytes)
    expected = torch.from_numpy(raw.copy()).view(TORCH_TYPES[name]).to(torch.float32).numpy()
    assert_same_bits(form.dequantize(raw), expected)


def test_booleans_decode_to_zero_and_one() -> None:
    decoded = FORMATS["BOOL"].dequantize(np.array([0, 1, 255], dtype=np.uint8))
    np.testing.assert_array_equal(decoded, np.array([0, 1, 1], dtype=np.float32))


@pytest.mark.parametrize("name", FORMATS)
def test_leading_axes_are_kept_and_nothing_decodes_to_nothing(name: str) -> None:
    form = FORMATS[name]
    assert form.dequantize(random_bytes(2, 3, 4 * form.block_bytes)).shape == (2, 3, 4 * form.block_size)
    assert form.dequantize(random_bytes(0, form.block_bytes)).shape == (0, form.block_size)


@pytest.mark.parametrize("name", sorted(set(FORMATS) - {"U8", "I8", "BOOL", "F8_E4M3", "F8_E5M2"}))
def test_part_of_a_block_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        FORMATS[name].dequantize(random_bytes(FORMATS[name].block_bytes + 1))


def test_tables_hold_what_they_say() -> None:
    assert set(FORMATS) == set(SAFETENSORS_FORMATS) | {form.name for form in GGUF_FORMATS.values()}
    assert all(FORMATS[form.name] is form for form in GGUF_FORMATS.values())
