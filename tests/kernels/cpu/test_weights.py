"""A repacked weight holds the numbers of the file, bit for bit, read back row by row through an embedding."""

from __future__ import annotations

import numpy as np
import pytest

from pagoda.kernels.cpu import CpuKernels, packed_bytes
from pagoda.kernels.cpu.library import FORMATS as PACKED_FORMATS
from pagoda.weights.quantization import FORMATS
from pagoda.weights.tensor import QuantizedTensor
from tests.kernels.cpu.blocks import SCALE_OFFSETS, SCALES, random_weight
from tests.kernels.cpu.programs import assert_same_bits, flat_batch, over, run_native
from tests.kernels.reference.dense_weight import DenseWeight

SIZES = [(1, 1), (3, 2), (16, 1), (17, 3), (100, 1)]  # rows, blocks


def read_back(kernels: CpuKernels, weight: QuantizedTensor) -> np.ndarray:
    return run_native(
        kernels, lambda table, batch, _: table.embed(weight, batch.token_ids), flat_batch(weight.shape[0])
    )


def assert_same_numbers(actual: np.ndarray, expected: np.ndarray, signed_zeros: bool = True) -> None:
    if not signed_zeros:
        both_zero = (actual == 0) & (expected == 0)
        actual, expected = np.where(both_zero, 0, actual), np.where(both_zero, 0, expected)
    assert_same_bits(actual, expected)


@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("format_name", SCALE_OFFSETS)
def test_blocks_decode_to_the_bits_of_the_reader(kernels: CpuKernels, format_name: str, scales: str):
    for rows, num_blocks in SIZES:
        weight = random_weight(format_name, rows, num_blocks * FORMATS[format_name].block_size, scales)
        # Q4_0 is kept as scale * quant - 8 * scale: the same number, but a zero loses the sign of its scale.
        assert_same_numbers(read_back(kernels, weight), weight.to_float32(), signed_zeros=format_name != "Q4_0")


@pytest.mark.parametrize("format_name", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("columns", [1, 15, 32, 50])
def test_plain_numbers_decode_to_the_bits_of_the_reader(kernels: CpuKernels, format_name: str, columns: int):
    for rows in (1, 16, 33):
        raw = np.random.default_rng(rows).integers(0, 256, (rows, columns * FORMATS[format_name].block_bytes), np.uint8)
        weight = QuantizedTensor("weight", format_name, (rows, columns), raw)
        expected, actual = weight.to_float32(), read_back(kernels, weight)
        np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
        number = ~np.isnan(expected)
        assert_same_bits(actual[number], expected[number])


def test_every_half_decodes_to_its_bits(instruction_set: str):
    raw = np.arange(1 << 16, dtype="<u2").reshape(256, 256)
    weight = QuantizedTensor("weight", "F16", (256, 256), raw.view(np.uint8))
    actual, expected = read_back(CpuKernels(1, instruction_set), weight), weight.to_float32()
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
    assert_same_bits(actual[~np.isnan(expected)], expected[~np.isnan(expected)])


def test_every_packed_format_is_tested_and_known_to_the_library():
    assert set(PACKED_FORMATS) == {*SCALE_OFFSETS, "F32", "F16", "BF16"}
    for name in PACKED_FORMATS:
        assert packed_bytes(random_weight(name, 5, 256)) > 0


@pytest.mark.parametrize("format_name", PACKED_FORMATS)
def test_packed_bytes_are_those_of_whole_groups(format_name: str):
    kernels = CpuKernels(2)
    weight = random_weight(format_name, 33, 256)
    kernels.prepare(weight)
    assert kernels.num_bytes() == packed_bytes(weight) == packed_bytes(random_weight(format_name, 48, 256))


def test_a_tied_weight_is_packed_once():
    kernels = CpuKernels(2)
    weight = random_weight("Q8_0", 40, 64)

    def forward(table, batch, _):
        return table.linear(table.embed(weight, batch.token_ids), weight)

    run_native(kernels, forward, flat_batch(3))
    kernels.prepare(weight)
    assert kernels.num_bytes() == packed_bytes(weight)
    kernels.prepare(random_weight("Q8_0", 40, 64))
    assert kernels.num_bytes() == 2 * packed_bytes(weight)


def test_what_has_no_packed_form_is_said_to_need_no_bytes():
    assert packed_bytes(DenseWeight(np.zeros(64))) == 0
    assert packed_bytes(QuantizedTensor("weight", "I8", (2, 4), np.zeros((2, 4), np.uint8))) == 0
    raw = np.zeros((2, 18), np.uint8)
    assert packed_bytes(QuantizedTensor("weight", "Q4_0", (2, 31), raw)) == 0
    assert packed_bytes(QuantizedTensor("weight", "Q4_0", (0, 32), raw)) == 0


def test_a_matrix_that_is_not_contiguous_is_packed_in_its_order():
    values = np.arange(64, dtype=np.float32).reshape(4, 16)
    weight = QuantizedTensor("weight", "F32", (4, 16), values.view(np.uint8)[::-1])
    expected = values[::-1]
    assert_same_bits(read_back(CpuKernels(2), weight), expected)


def test_rows_are_taken_in_any_order_and_as_often_as_asked(kernels: CpuKernels):
    weight = random_weight("Q4_K", 50, 256)
    batch = flat_batch(7)
    tokens = np.array([49, 0, 0, 16, 15, 31, 49], np.int32)
    batch = type(batch)(tokens, batch.positions, batch.row_starts, batch.context_lens, batch.page_tables)
    rows = np.array([6, 0, 3, 3], np.int32)
    actual = run_native(kernels, lambda table, b, _: table.embed(weight, b.token_ids), batch, rows=rows)
    assert_same_bits(actual, weight.rows_to_float32(tokens[rows]))


def test_a_program_of_no_logits_runs(kernels: CpuKernels):
    forward = over(lambda table, x: table.add(x, x), np.ones((3, 16), np.float32))
    assert run_native(kernels, forward, flat_batch(3), rows=np.zeros(0, np.int32)).shape == (0, 16)
