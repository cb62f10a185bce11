"""A weight decodes as a whole or by rows, and shows its bytes by row."""

from __future__ import annotations

import numpy as np
import pytest

from pagoda.kernels.base import Weight
from pagoda.weights.quantization import FORMATS
from pagoda.weights.tensor import QuantizedTensor, TensorInfo


def made(format: str, shape: tuple[int, ...], seed: int = 1) -> QuantizedTensor:
    num_bytes = FORMATS[format].num_bytes(int(np.prod(shape)))
    raw = np.random.default_rng(seed).integers(0, 120, num_bytes, dtype=np.uint8)
    return QuantizedTensor.from_bytes(TensorInfo("w", format, shape, 0, num_bytes), raw)


@pytest.mark.parametrize("format", FORMATS)
def test_rows_are_those_of_the_whole(format: str) -> None:
    weight: Weight = made(format, (10, 512))
    whole = weight.to_float32()
    assert whole.shape == (10, 512)
    assert weight.raw.shape == (10, FORMATS[format].num_bytes(512))
    indices = np.array([[3, 3, 0], [9, 1, 2]])
    np.testing.assert_array_equal(weight.rows_to_float32(indices), whole[indices])


def test_the_first_axis_of_a_cube_is_taken() -> None:
    weight = made("Q4_0", (3, 4, 64))
    assert weight.raw.shape == (12, 36)
    np.testing.assert_array_equal(weight.rows_to_float32(np.array([2, 0])), weight.to_float32()[[2, 0]])


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (0, 3), (7,)])
def test_scalars_vectors_and_empty_tensors_decode(shape: tuple[int, ...]) -> None:
    assert made("F16", shape).to_float32().shape == shape
    assert made("F32", shape).to_float32().shape == shape


def test_float32_is_a_view_where_the_words_are_aligned() -> None:
    data = np.arange(10, dtype=np.float32)
    aligned = QuantizedTensor.from_bytes(TensorInfo("w", "F32", (2, 5), 0, 40), data.view(np.uint8))
    assert np.shares_memory(aligned.to_float32(), data)
    shifted = np.concatenate([np.zeros(1, np.uint8), data.view(np.uint8)])[1:]
    moved = QuantizedTensor.from_bytes(TensorInfo("w", "F32", (2, 5), 0, 40), shifted).to_float32()
    assert moved.flags.aligned
    np.testing.assert_array_equal(moved, data.reshape(2, 5))


@pytest.mark.parametrize("index", [-1, 10])
def test_a_row_that_is_not_there_is_refused(index: int) -> None:
    with pytest.raises(IndexError, match="outside 0..9"):
        made("F32", (10, 4)).rows_to_float32(np.array([0, index]))


def test_no_indices_give_no_rows_and_a_vector_has_none() -> None:
    assert made("Q8_0", (10, 32)).rows_to_float32(np.array([], dtype=np.int64)).shape == (0, 32)
    with pytest.raises(ValueError, match="two or more axes"):
        made("F32", (10,)).rows_to_float32(np.array([0]))
