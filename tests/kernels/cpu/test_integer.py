"""Products in bytes, held to the error of single precision over what the twin says the rounded inputs are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagoda.kernels.cpu import CpuKernels
from pagoda.kernels.cpu.library import FORMATS as PACKED_FORMATS
from pagoda.kernels.cpu.library import available_instruction_sets
from pagoda.kernels.cpu.recorder import Operation
from pagoda.kernels.reference.integer import round_inputs
from pagoda.weights.quantization import FORMATS
from pagoda.weights.tensor import QuantizedTensor
from tests.kernels.cpu.blocks import SCALE_OFFSETS, SCALES, random_weight
from tests.kernels.cpu.programs import assert_same_bits, compile_program, flat_batch, normal, over, run_native
from tests.kernels.cpu.test_independence import tokens_of
from tests.kernels.reference.dense_weight import DenseWeight

TOKENS = (1, 2, 3, 4, 7, 8, 12, 13, 31, 37)
UNIT_ROUNDOFF = 2.0**-24
SETS = st.sampled_from(available_instruction_sets() or ("none",))


def in_bytes(kernels: CpuKernels) -> CpuKernels:
    return CpuKernels(kernels.num_threads, kernels.instruction_set, "int8")


def inputs(num_tokens: int, columns: int) -> np.ndarray:
    """With outliers in some rows, and rows of zeros."""
    x = normal(num_tokens, columns, seed=num_tokens)
    generator = np.random.default_rng(columns)
    for row in x[::2]:
        row[generator.integers(columns, size=columns // 64)] *= 30
    x[3::5] = 0
    return x


def product(kernels: CpuKernels, weight: QuantizedTensor, x: np.ndarray, bias: DenseWeight | None = None) -> np.ndarray:
    return run_native(kernels, over(lambda table, x: table.linear(x, weight, bias), x), flat_batch(len(x)))


def check(kernels: CpuKernels, weight: QuantizedTensor, x: np.ndarray, bias: DenseWeight | None = None) -> None:
    actual = product(kernels, weight, x, bias)
    rounded = round_inputs(x).astype(np.float64)
    matrix = weight.to_float32().astype(np.float64)
    # Scale and minimum of a block are added one after the other: what cancels between them counts by its size.
    minimum = np.abs(matrix).max()
    expected = rounded @ matrix.T
    magnitude = np.abs(rounded) @ np.abs(matrix.T) + 2 * np.abs(rounded).sum(axis=1, keepdims=True) * minimum
    if bias is not None:
        expected += bias.values
        magnitude += np.abs(bias.values)
    bound = (weight.shape[1] / 8 + 4) * UNIT_ROUNDOFF * magnitude + 1e-30
    worst = np.max(np.abs(actual - expected) / bound)
    assert worst <= 1.0, f"{worst:.2f} times the bound"


@pytest.mark.parametrize("format_name", SCALE_OFFSETS)
def test_every_format_and_number_of_tokens(kernels: CpuKernels, format_name: str):
    for num_tokens in TOKENS:
        check(in_bytes(kernels), random_weight(format_name, 53, 512, seed=num_tokens), inputs(num_tokens, 512))


@pytest.mark.parametrize("scales", sorted(set(SCALES) - {"largest"}))
@pytest.mark.parametrize("format_name", SCALE_OFFSETS)
def test_scales_of_every_kind(kernels: CpuKernels, format_name: str, scales: str):
    for num_tokens in (1, 13):
        check(in_bytes(kernels), random_weight(format_name, 20, 256, scales), inputs(num_tokens, 256))


@pytest.mark.parametrize("num_tokens", [1, 5])
def test_every_number_of_rows(kernels: CpuKernels, num_tokens: int):
    for rows in (*range(1, 36), 47, 48, 49, 100):
        check(in_bytes(kernels), random_weight("Q4_1", rows, 64, seed=rows), inputs(num_tokens, 64))


@pytest.mark.parametrize("size", [1e-42, 1e-35, 1e-25, 1e-20, 1e-10, 1e15, 1e25])
def test_inputs_of_any_size(kernels: CpuKernels, size: float):
    """Squares of the smallest vanish and of the largest are infinite: neither may make a whole row stand out."""
    for num_tokens in (1, 13):
        check(in_bytes(kernels), random_weight("Q4_1", 20, 96), inputs(num_tokens, 96) * np.float32(size))


def test_a_bias_is_added(kernels: CpuKernels):
    for num_tokens in TOKENS:
        bias = DenseWeight(10 * normal(48, seed=num_tokens))
        check(in_bytes(kernels), random_weight("Q8_0", 48, 96), inputs(num_tokens, 96), bias)


def filled(format_name: str, fill: int) -> QuantizedTensor:
    """Every byte but those of the half-precision scales."""
    weight = random_weight(format_name, 16, 256)
    blocks = weight.raw.reshape(-1, FORMATS[format_name].block_bytes)
    raw = np.full_like(blocks, fill)
    for offset in SCALE_OFFSETS[format_name]:
        raw[:, offset : offset + 2] = blocks[:, offset : offset + 2]
    return QuantizedTensor("weight", format_name, (16, 256), raw.reshape(weight.raw.shape))


@pytest.mark.parametrize("format_name", SCALE_OFFSETS)
def test_the_largest_quants_do_not_overflow(kernels: CpuKernels, format_name: str):
    """All quants at their ends, all inputs at the byte's: sums of 16 bits would show it."""
    for fill in (0x00, 0x7F, 0x80, 0xFF):
        x = np.full((13, 256), 3.0, np.float32)
        x[1::2] *= -1
        x[2::3, ::2] *= -1
        check(in_bytes(kernels), filled(format_name, fill), x)


def test_broken_inputs_stay_in_their_row(kernels: CpuKernels):
    x = normal(14, 64)
    x[3, 5], x[12, 0] = np.nan, np.inf
    actual = product(in_bytes(kernels), random_weight("Q4_1", 19, 64), x)
    assert np.isnan(actual[[3, 12]]).all()
    assert np.isfinite(np.delete(actual, [3, 12], axis=0)).all()


@given(st.sampled_from(sorted(SCALE_OFFSETS)), st.integers(1, 70), st.data())
@settings(max_examples=60)
def test_a_product_is_the_same_for_any_company_and_instruction_set(format_name, rows, data):
    weight = random_weight(format_name, rows, 512, seed=rows)
    x = inputs(40, 512)
    forward = over(lambda table, x: table.linear(x, weight), x)
    layers = [CpuKernels(1).new_pages(1, 16, 1, 16)]
    first = np.zeros(1, np.int32)
    alone = compile_program(CpuKernels(1, "scalar", "int8"), forward, layers, 40)
    expected = np.concatenate([alone.run(tokens_of(flat_batch(1), np.array([t])), first) for t in range(40)])
    for num_threads in (1, 2, 3):
        tokens = np.array(data.draw(st.lists(st.integers(0, 39), min_size=1, max_size=40)))
        program = compile_program(CpuKernels(num_threads, data.draw(SETS), "int8"), forward, layers, 40)
        batch = tokens_of(flat_batch(len(tokens)), tokens)
        assert_same_bits(program.run(batch, np.arange(len(tokens), dtype=np.int32)), expected[tokens])


def test_products_of_one_input_round_it_once():
    kernels = CpuKernels(2, compute="int8")
    first, second, dense = random_weight("Q4_1", 32, 64), random_weight("Q8_0", 32, 64), random_weight("F16", 32, 64)

    def forward(table, x):
        return table.add(table.add(table.linear(x, first), table.linear(x, second)), table.linear(x, dense))

    layers = [kernels.new_pages(1, 16, 1, 16)]
    program = compile_program(kernels, over(forward, normal(3, 64)), layers, 8)
    operations = [recorded.operation for recorded in program._recorder.instructions]
    assert operations.count(Operation.QUANTIZE) == 1
    assert operations.count(Operation.LINEAR_INTEGER) == 2 and operations.count(Operation.LINEAR) == 1


def test_every_quantized_format_is_tested():
    assert set(SCALE_OFFSETS) == set(PACKED_FORMATS) - {"F32", "F16", "BF16"}
