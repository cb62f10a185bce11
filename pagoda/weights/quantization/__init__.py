"""Every weight format by name, and the number each has in a GGUF file."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pagoda.weights.quantization.base import WeightFormat
from pagoda.weights.quantization.iq4 import IQ4_NL, IQ4_XS
from pagoda.weights.quantization.k_quants import Q2_K, Q3_K, Q4_K, Q5_K, Q6_K
from pagoda.weights.quantization.plain import BF16, BOOL, F8_E4M3, F8_E5M2, F16, F32, F64, I8, I16, I32, I64, U8
from pagoda.weights.quantization.q4 import Q4_0, Q4_1
from pagoda.weights.quantization.q5 import Q5_0, Q5_1
from pagoda.weights.quantization.q8 import Q8_0

GGUF_FORMATS: Mapping[int, WeightFormat] = MappingProxyType(
    {
        0: F32,
        1: F16,
        2: Q4_0,
        3: Q4_1,
        6: Q5_0,
        7: Q5_1,
        8: Q8_0,
        10: Q2_K,
        11: Q3_K,
        12: Q4_K,
        13: Q5_K,
        14: Q6_K,
        20: IQ4_NL,
        23: IQ4_XS,
        24: I8,
        25: I16,
        26: I32,
        27: I64,
        28: F64,
        30: BF16,
    }
)

SAFETENSORS_FORMATS: Mapping[str, WeightFormat] = MappingProxyType(
    {form.name: form for form in (F64, F32, F16, BF16, I64, I32, I16, I8, U8, BOOL, F8_E4M3, F8_E5M2)}
)

FORMATS: Mapping[str, WeightFormat] = MappingProxyType(
    {**SAFETENSORS_FORMATS, **{form.name: form for form in GGUF_FORMATS.values()}}
)

__all__ = ["FORMATS", "GGUF_FORMATS", "SAFETENSORS_FORMATS", "WeightFormat"]
