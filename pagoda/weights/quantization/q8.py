"""Q8_0: 32 signed bytes with one scale."""

from __future__ import annotations

import numpy as np

from pagoda.weights.quantization.base import block_format, column, packed


def _decode_q8_0(records: np.ndarray) -> np.ndarray:
    return column(records["scale"]) * records["quants"]


Q8_0 = block_format("Q8_0", 32, packed(("scale", "<f2"), ("quants", "i1", 32)), _decode_q8_0)
