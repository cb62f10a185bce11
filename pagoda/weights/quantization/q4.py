"""Q4_0 and Q4_1: 32 elements of four bits with one scale, and with or without a minimum."""

from __future__ import annotations

import numpy as np

from pagoda.weights.quantization.base import bit_fields, block_format, column, packed


def _four_bits(records: np.ndarray) -> np.ndarray:
    return bit_fields(records["quants"], 4).reshape(len(records), 32)


def _decode_q4_0(records: np.ndarray) -> np.ndarray:
    return column(records["scale"]) * (_four_bits(records).view(np.int8) - np.int8(8))


def _decode_q4_1(records: np.ndarray) -> np.ndarray:
    return column(records["scale"]) * _four_bits(records) + column(records["minimum"])


Q4_0 = block_format("Q4_0", 32, packed(("scale", "<f2"), ("quants", "u1", 16)), _decode_q4_0)
Q4_1 = block_format("Q4_1", 32, packed(("scale", "<f2"), ("minimum", "<f2"), ("quants", "u1", 16)), _decode_q4_1)
