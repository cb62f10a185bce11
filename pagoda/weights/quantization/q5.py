"""Q5_0 and Q5_1: 32 elements of five bits (four here, the fifth in a mask), with or without a minimum."""

from __future__ import annotations

import numpy as np

from pagoda.weights.quantization.base import bit_fields, block_format, column, packed


def _five_bits(records: np.ndarray) -> np.ndarray:
    low = bit_fields(records["quants"], 4).reshape(len(records), 32)
    high = np.unpackbits(records["high"], axis=1, bitorder="little")
    return low | (high << np.uint8(4))


def _decode_q5_0(records: np.ndarray) -> np.ndarray:
    return column(records["scale"]) * (_five_bits(records).view(np.int8) - np.int8(16))


def _decode_q5_1(records: np.ndarray) -> np.ndarray:
    return column(records["scale"]) * _five_bits(records) + column(records["minimum"])


Q5_0 = block_format("Q5_0", 32, packed(("scale", "<f2"), ("high", "u1", 4), ("quants", "u1", 16)), _decode_q5_0)
Q5_1 = block_format(
    "Q5_1",
    32,
    packed(("scale", "<f2"), ("minimum", "<f2"), ("high", "u1", 4), ("quants", "u1", 16)),
    _decode_q5_1,
)
