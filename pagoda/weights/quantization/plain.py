"""Formats that store one number per element: floats of every width, integers and booleans."""

from __future__ import annotations

import numpy as np

from pagoda.weights.quantization.base import WeightFormat


def _element_format(name: str, dtype: str) -> WeightFormat:
    kind = np.dtype(dtype)

    def decode(blocks: np.ndarray) -> np.ndarray:
        return blocks.view(kind).astype(np.float32)

    return WeightFormat(name, 1, kind.itemsize, decode)


def _decode_bfloat16(blocks: np.ndarray) -> np.ndarray:
    return (blocks.view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)


def _float8_e5m2_values() -> np.ndarray:
    # E5M2 is the upper half of a float16.
    return (np.arange(256, dtype=np.uint16) << np.uint16(8)).view(np.float16).astype(np.float32)


def _float8_e4m3_values() -> np.ndarray:
    # The "fn" variant: bias 7, no infinities, only the all-ones pattern is not a number.
    codes = np.arange(128)
    exponents, mantissas = codes >> 3, codes & 7
    values = np.where(exponents == 0, np.ldexp(mantissas, -9), np.ldexp(8 + mantissas, exponents - 10))
    values[127] = np.nan
    return np.concatenate([values, -values]).astype(np.float32)


def _table_format(name: str, values: np.ndarray) -> WeightFormat:
    return WeightFormat(name, 1, 1, lambda blocks: values[blocks])


F64 = _element_format("F64", "<f8")
F32 = _element_format("F32", "<f4")
F16 = _element_format("F16", "<f2")
BF16 = WeightFormat("BF16", 1, 2, _decode_bfloat16)
F8_E4M3 = _table_format("F8_E4M3", _float8_e4m3_values())
F8_E5M2 = _table_format("F8_E5M2", _float8_e5m2_values())
I64 = _element_format("I64", "<i8")
I32 = _element_format("I32", "<i4")
I16 = _element_format("I16", "<i2")
I8 = _element_format("I8", "i1")
U8 = _element_format("U8", "u1")
# Any byte but zero is true.
BOOL = WeightFormat("BOOL", 1, 1, lambda blocks: (blocks != 0).astype(np.float32))
