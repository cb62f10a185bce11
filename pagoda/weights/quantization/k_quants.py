"""Q2_K to Q6_K: super-blocks of 256 elements whose sub-blocks have small integer scales under one float scale."""

from __future__ import annotations

import numpy as np

from pagoda.weights.quantization.base import bit_fields, block_format, column, packed

SUPER_BLOCK = 256


def _scaled(quants: np.ndarray, scales: np.ndarray, minimums: np.ndarray | None = None) -> np.ndarray:
    """quants * scale (- minimum), each scale covering an equal run of consecutive elements."""
    num_blocks, num_runs = scales.shape
    values = quants.reshape(num_blocks, num_runs, -1).astype(np.float32)
    values *= scales[..., None]
    if minimums is not None:
        values -= minimums[..., None]
    return values


def _six_bit_scales(packed_scales: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The 12 bytes of Q4_K and Q5_K: eight 6-bit scales and eight 6-bit minimums.

    Bytes 0-3 and 4-7 hold scales and minimums 0-3 in their low six bits and the top two bits of scales and minimums
    4-7; bytes 8-11 hold the low four bits of those: scale in the low nibble, minimum in the high one.
    """
    first, second, third = packed_scales[:, 0:4], packed_scales[:, 4:8], packed_scales[:, 8:12]
    scales = np.concatenate([first & 63, (third & 15) | (first >> 6 << 4)], axis=1)
    minimums = np.concatenate([second & 63, (third >> 4) | (second >> 6 << 4)], axis=1)
    return scales, minimums


def _decode_q2_k(records: np.ndarray) -> np.ndarray:
    quants = bit_fields(records["quants"].reshape(-1, 2, 32), 2)
    scales = column(records["scale"]) * (records["scales"] & 15)
    minimums = column(records["minimum"]) * (records["scales"] >> 4)
    return _scaled(quants, scales, minimums)


def _decode_q3_k(records: np.ndarray) -> np.ndarray:
    num_blocks = len(records)
    low = bit_fields(records["quants"].reshape(-1, 2, 32), 2).reshape(num_blocks, SUPER_BLOCK)
    high = bit_fields(records["high"], 1).reshape(num_blocks, SUPER_BLOCK)
    quants = (low | (high << np.uint8(2))).view(np.int8) - np.int8(4)
    scales_low = bit_fields(records["scales"][:, :8], 4).reshape(num_blocks, 16)
    scales_high = bit_fields(records["scales"][:, 8:], 2).reshape(num_blocks, 16)
    scales = (scales_low | (scales_high << np.uint8(4))).view(np.int8) - np.int8(32)
    return _scaled(quants, column(records["scale"]) * scales)


def _decode_q4_k(records: np.ndarray) -> np.ndarray:
    scales, minimums = _six_bit_scales(records["scales"])
    quants = bit_fields(records["quants"].reshape(-1, 4, 32), 4)
    return _scaled(quants, column(records["scale"]) * scales, column(records["minimum"]) * minimums)


def _decode_q5_k(records: np.ndarray) -> np.ndarray:
    scales, minimums = _six_bit_scales(records["scales"])
    low = bit_fields(records["quants"].reshape(-1, 4, 32), 4).reshape(-1, 8, 32)
    quants = low | (bit_fields(records["high"], 1) << np.uint8(4))
    return _scaled(quants, column(records["scale"]) * scales, column(records["minimum"]) * minimums)


def _decode_q6_k(records: np.ndarray) -> np.ndarray:
    num_blocks = len(records)
    low = bit_fields(records["low"].reshape(-1, 2, 64), 4).reshape(num_blocks, SUPER_BLOCK)
    high = bit_fields(records["high"].reshape(-1, 2, 32), 2).reshape(num_blocks, SUPER_BLOCK)
    quants = (low | (high << np.uint8(4))).view(np.int8) - np.int8(32)
    return _scaled(quants, column(records["scale"]) * records["scales"])


Q2_K = block_format(
    "Q2_K",
    SUPER_BLOCK,
    packed(("scales", "u1", 16), ("quants", "u1", 64), ("scale", "<f2"), ("minimum", "<f2")),
    _decode_q2_k,
)
Q3_K = block_format(
    "Q3_K",
    SUPER_BLOCK,
    packed(("high", "u1", 32), ("quants", "u1", 64), ("scales", "u1", 12), ("scale", "<f2")),
    _decode_q3_k,
)
Q4_K = block_format(
    "Q4_K",
    SUPER_BLOCK,
    packed(("scale", "<f2"), ("minimum", "<f2"), ("scales", "u1", 12), ("quants", "u1", 128)),
    _decode_q4_k,
)
Q5_K = block_format(
    "Q5_K",
    SUPER_BLOCK,
    packed(("scale", "<f2"), ("minimum", "<f2"), ("scales", "u1", 12), ("high", "u1", 32), ("quants", "u1", 128)),
    _decode_q5_k,
)
Q6_K = block_format(
    "Q6_K",
    SUPER_BLOCK,
    packed(("low", "u1", 128), ("high", "u1", 64), ("scales", "i1", 16), ("scale", "<f2")),
    _decode_q6_k,
)
