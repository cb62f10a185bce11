"""Random weights of every packed format whose half-precision scales are chosen by the test."""

from __future__ import annotations

import numpy as np

from pagoda.weights.quantization import FORMATS
from pagoda.weights.tensor import QuantizedTensor

# Where the half-precision scales of a block stand.
SCALE_OFFSETS = {
    **{"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "IQ4_NL": [0], "IQ4_XS": [0]},
    **{"Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]},
}
LARGEST = 65504.0
SCALES = {
    "usual": lambda generator, shape: generator.uniform(0.001, 0.05, shape),
    "negative": lambda generator, shape: generator.uniform(-0.05, -0.001, shape),
    "zero": lambda generator, shape: np.zeros(shape),
    "negative zero": lambda generator, shape: -np.zeros(shape),
    "subnormal": lambda generator, shape: generator.integers(-1023, 1024, shape) * 2.0**-24,
    "largest": lambda generator, shape: generator.choice([-LARGEST, LARGEST], shape),
}


def random_weight(format_name: str, rows: int, columns: int, scales: str = "usual", seed: int = 0) -> QuantizedTensor:
    form = FORMATS[format_name]
    generator = np.random.default_rng(seed)
    if form.block_size == 1:
        values = generator.standard_normal((rows, columns)).astype(np.float32)
        raw = {"F32": values, "F16": values.astype(np.float16), "BF16": (values.view(np.uint32) >> 16).astype("<u2")}
        return QuantizedTensor("weight", format_name, (rows, columns), raw[format_name].view(np.uint8))
    num_blocks = columns // form.block_size
    raw = generator.integers(0, 256, (rows, num_blocks, form.block_bytes), dtype=np.uint8)
    for offset in SCALE_OFFSETS[format_name]:
        chosen = SCALES[scales](generator, (rows, num_blocks)).astype(np.float16)
        raw[:, :, offset : offset + 2] = chosen[:, :, None].view(np.uint8)
    return QuantizedTensor("weight", format_name, (rows, columns), raw.reshape(rows, -1))
