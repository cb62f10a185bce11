from __future__ import annotations

from typing import Any

import numpy as np
import torch

from pagoda.kernels.cuda.counting import NOWHERE
from pagoda.kernels.cuda.weights import DeviceWeights
from pagoda.models.random_weights import RandomWeight
from pagoda.weights.tensor import QuantizedTensor
from tests.kernels.cuda.device import DEVICE, to_numpy

WEIGHTS = DeviceWeights(torch.device(DEVICE), torch.bfloat16)


def stored(format: str, values: np.ndarray, offset: int = 0) -> QuantizedTensor:
    """A weight as a file holds it, at any place of the file; read-only as a mapped file is."""
    if format == "BF16":
        values = (values.view(np.uint32) >> 16).astype(np.uint16)
    raw = np.frombuffer(bytes(offset) + values.tobytes(), np.uint8)[offset:]
    return QuantizedTensor("w", format, values.shape, raw.reshape(values.shape[0], -1))


def halves(*shape: int, seed: int) -> np.ndarray:
    """Numbers that bf16 holds as they are."""
    return np.random.default_rng(seed).integers(-64, 64, shape).astype(np.float32) / 8


def test_formats_and_odd_places_of_a_file_make_no_difference() -> None:
    values = halves(6, 10, seed=1)
    for weight in (stored("BF16", values), stored("BF16", values, offset=1), stored("F32", values, offset=3)):
        matrix = WEIGHTS.matrix((weight,))
        assert matrix.dtype == torch.bfloat16
        WEIGHTS._uploader.wait()
        np.testing.assert_array_equal(to_numpy(matrix), values)
        assert WEIGHTS.matrix((weight,)) is matrix, "a weight is uploaded once"


def test_joined_weights_stand_one_below_the_other() -> None:
    parts = [halves(rows, 8, seed=rows) for rows in (4, 2, 6)]
    matrix = WEIGHTS.matrix([stored("BF16", part) for part in parts])
    WEIGHTS._uploader.wait()
    np.testing.assert_array_equal(to_numpy(matrix), np.concatenate(parts))
    bias = WEIGHTS.bias([stored("F32", parts[0][:, :1].ravel()[:, None])], [4])
    assert bias is not None and WEIGHTS.bias([None, None], [4, 2]) is None


def test_float8_keeps_three_bits_and_a_scale_an_output() -> None:
    values = np.random.default_rng(3).standard_normal((5, 32), np.float32) * np.array([[1], [100], [1e-3], [1], [0]])
    numbers, scales = WEIGHTS.fp8_matrix((stored("F32", values.astype(np.float32)),))
    assert numbers.dtype == torch.float8_e4m3fn and scales.shape == (1, 5)
    again = to_numpy(numbers) * to_numpy(scales).T
    error = np.abs(again - values)
    assert (error <= 0.07 * np.abs(values) + 1e-5 * np.abs(values).max(axis=1, keepdims=True)).all()


def test_a_weight_that_is_only_a_shape_is_made_up_on_the_device() -> None:
    matrix = to_numpy(WEIGHTS.matrix((RandomWeight((64, 64)),)))
    assert 0.015 < matrix.std() < 0.025
    assert (to_numpy(WEIGHTS.vector(RandomWeight((9,)))) == 1).all()


def test_what_a_weight_takes_is_told_by_its_form() -> None:
    weights = DeviceWeights(torch.device(DEVICE), torch.bfloat16)
    query, key, norm = RandomWeight((6, 16)), RandomWeight((2, 16)), RandomWeight((16,))
    head, gate = RandomWeight((20, 16)), RandomWeight((8, 16))
    before = weights.num_bytes()
    weights.matrix((query, key))
    assert weights.stored(query) == (2 * 6 * 16, "bf16") and weights.stored(key) == (2 * 2 * 16, "bf16")
    weights.vector(norm)
    weights.matrix((head,))
    numbers, scales = weights.fp8_matrix((gate,))
    assert weights.stored(gate) == (8 * 16 + 4 * 8, "fp8")
    assert weights.stored(norm).num_bytes == 4 * 16
    assert weights.num_bytes() - before == sum(weights.stored(w).num_bytes for w in (query, key, norm, head, gate))


def test_a_product_without_a_bias_among_others_gets_zeros() -> None:
    own = DeviceWeights(torch.device(DEVICE), torch.float32)
    values = halves(4, seed=7)
    bias = own.bias([None, stored("F32", values), None], [2, 4, 3])
    own.finish()
    assert bias is not None
    np.testing.assert_array_equal(to_numpy(bias), np.concatenate([np.zeros(2), values, np.zeros(3)]))
    assert own.num_bytes() == 4 * 9


def test_where_nothing_is_held_nothing_is_read() -> None:
    class Unread:
        format, shape = "F32", (4, 8)

        @property
        def raw(self) -> np.ndarray:
            raise AssertionError("only the shape counts")

        to_float32 = raw

    own = DeviceWeights(NOWHERE, torch.bfloat16)
    weight: Any = Unread()
    own.matrix((weight,))
    own.fp8_matrix((weight, weight))
    assert own.num_bytes() == 2 * 32 + 64 + 4 * 8
