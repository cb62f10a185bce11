"""IQ4_NL and IQ4_XS: four bits that choose from a table of sixteen unevenly spaced values."""

from __future__ import annotations

import numpy as np

from pagoda.weights.quantization.base import bit_fields, block_format, column, packed

VALUES = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], dtype=np.float32)


def _decode_iq4_nl(records: np.ndarray) -> np.ndarray:
    return column(records["scale"]) * VALUES[bit_fields(records["quants"], 4).reshape(len(records), 32)]


def _decode_iq4_xs(records: np.ndarray) -> np.ndarray:
    # Eight sub-blocks of 32 elements; scale i has its low four bits in scales_low, its top two in scales_high.
    runs = np.arange(8, dtype=np.uint8)
    low = (records["scales_low"][:, runs // 2] >> (runs % 2 * 4).astype(np.uint8)) & 15
    high = (records["scales_high"][:, None] >> (runs * 2).astype(np.uint16)) & 3
    scales = column(records["scale"]) * ((low | (high.astype(np.uint8) << np.uint8(4))).view(np.int8) - np.int8(32))
    values = VALUES[bit_fields(records["quants"].reshape(-1, 8, 16), 4).reshape(-1, 8, 32)]
    return scales[..., None] * values


IQ4_NL = block_format("IQ4_NL", 32, packed(("scale", "<f2"), ("quants", "u1", 16)), _decode_iq4_nl)
IQ4_XS = block_format(
    "IQ4_XS",
    256,
    packed(("scale", "<f2"), ("scales_high", "<u2"), ("scales_low", "u1", 4), ("quants", "u1", 128)),
    _decode_iq4_xs,
)
