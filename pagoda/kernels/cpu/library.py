"""The native library: its records, as the headers in `native/` have them, and its few functions."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_char_p, c_double, c_int32, c_int64, c_uint64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

LIBRARY = Path(__file__).with_name("libpagoda.so.1")  # no module of Python's, and not called like one
INSTRUCTION_SETS = ("avx512", "avx2", "neon_dot", "neon", "scalar")  # the first that the machine has is used

FORMATS = (
    *("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"),
    *("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS"),
)


class PackedWeight(Structure):
    _fields_ = [
        ("kind", c_int32),
        ("block", c_int32),
        ("scale_bytes", c_int32),
        ("has_minimum", c_int32),
        ("offset", c_int32),
        ("header_bytes", c_int32),
        ("num_rows", c_int64),
        ("num_columns", c_int64),
        ("num_groups", c_int64),
        ("block_bytes", c_int64),
        ("group_bytes", c_int64),
        ("data", c_void_p),
    ]


class Instruction(Structure):
    _fields_ = [
        ("operation", c_int32),
        ("barriers", c_int32),
        ("arguments", c_int64 * 6),
        ("factors", c_double * 2),
        ("run", c_int64),
    ]


class Buffer(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("width", c_int64),
        ("stride", c_int64),
        ("is_rows", c_int64),
        ("own_stride", c_int64),
    ]


class Vector(Structure):
    _fields_ = [("data", c_void_p), ("length", c_int64)]


class Rope(Structure):
    _fields_ = [
        ("frequencies", c_void_p),
        ("factor", c_double),
        ("num_pairs", c_int64),
        ("interleaved", c_int64),
        ("cos", c_void_p),
        ("sin", c_void_p),
        ("own_stride", c_int64),
    ]


class LayerPages(Structure):
    _fields_ = [
        ("keys", c_void_p),
        ("values", c_void_p),
        ("key_scales", c_void_p),
        ("value_scales", c_void_p),
        ("type", c_int64),
        ("number_bytes", c_int64),
        ("num_heads", c_int64),
        ("head_width", c_int64),
    ]


class PageTables(Structure):
    _fields_ = [("pages", c_void_p), ("stride", c_int64), ("order", c_void_p)]


class Program(Structure):
    _fields_ = [
        ("instructions", POINTER(Instruction)),
        ("num_instructions", c_int64),
        ("buffers", POINTER(Buffer)),
        ("weights", POINTER(PackedWeight)),
        ("vectors", POINTER(Vector)),
        ("ropes", POINTER(Rope)),
        ("layers", POINTER(LayerPages)),
        ("page_size", c_int64),
    ]


class Step(Structure):
    _fields_ = [
        ("token_ids", c_void_p),
        ("positions", c_void_p),
        ("row_starts", c_void_p),
        ("context_lens", c_void_p),
        ("tables", POINTER(PageTables)),
        ("num_tables", c_int64),
        ("logit_rows", c_void_p),
        ("num_tokens", c_int64),
        ("num_rows", c_int64),
        ("num_logit_rows", c_int64),
        ("scratch", c_void_p),
        ("scratch_stride", c_int64),
        ("parts", c_void_p),
        ("num_part_floats", c_int64),
        ("arrivals", c_void_p),
        ("num_arrivals", c_int64),
        ("claims", c_void_p),
        ("nanoseconds", c_void_p),
    ]


class Limits(Structure):
    _fields_ = [("max_tokens", c_int64), ("num_groups", c_int64), ("num_pages", POINTER(c_int64))]


class TokenCells(Structure):
    _fields_ = [
        ("rows", c_void_p),
        ("token_ids", c_void_p),
        ("values", c_void_p),
        ("counts", c_void_p),
        ("count", c_int64),
    ]


class Sampling(Structure):
    _fields_ = [
        ("logits", c_void_p),
        ("num_rows", c_int64),
        ("stride", c_int64),
        ("vocab_size", c_int64),
        ("temperature", c_void_p),
        ("seeds", c_void_p),
        ("sample_indices", c_void_p),
        ("positions", c_void_p),
        ("top_k", c_void_p),
        ("top_p", c_void_p),
        ("log_min_p", c_void_p),
        ("typical_p", c_void_p),
        ("allowed", TokenCells),
        ("banned", TokenCells),
        ("bias", TokenCells),
        ("penalties", TokenCells),
        ("repetition", c_void_p),
        ("presence", c_void_p),
        ("frequency", c_void_p),
        ("token_ids", c_void_p),
        ("outcomes", c_void_p),
    ]


class Scoring(Structure):
    _fields_ = [
        ("logits", c_void_p),
        ("stride", c_int64),
        ("vocab_size", c_int64),
        ("num_entries", c_int64),
        ("width", c_int64),
        ("rows", c_void_p),
        ("token_ids", c_void_p),
        ("num_top", c_void_p),
        ("chosen", c_void_p),
        ("ranks", c_void_p),
        ("top_token_ids", c_void_p),
        ("top_values", c_void_p),
        ("outcomes", c_void_p),
    ]


@cache
def load_library() -> Any:
    """The library, or None where it was not built."""
    try:
        return _declare(ctypes.CDLL(str(LIBRARY)))
    except (OSError, AttributeError):  # not there, damaged, or of another version
        return None


def _declare(library: Any) -> Any:
    library.pagoda_supports.argtypes = [c_char_p]
    library.pagoda_supports.restype = c_int32
    library.pagoda_describe_weight.argtypes = [c_char_p, c_int64, c_int64, POINTER(PackedWeight)]
    library.pagoda_describe_weight.restype = c_int64
    library.pagoda_integer_row_bytes.argtypes = [c_int64]
    library.pagoda_integer_row_bytes.restype = c_int64
    library.pagoda_integer_scratch.argtypes = [c_int64, c_int64]
    library.pagoda_integer_scratch.restype = c_int64
    library.pagoda_pack.argtypes = [c_char_p, c_void_p, POINTER(PackedWeight), c_int32]
    library.pagoda_check_step.argtypes = [POINTER(Program), POINTER(Step), POINTER(Limits)]
    library.pagoda_check_step.restype = c_int32
    library.pagoda_run_checked.argtypes = [POINTER(Program), POINTER(Step), POINTER(Limits), c_char_p, c_int32]
    library.pagoda_run_checked.restype = c_int32
    library.pagoda_sample.argtypes = [POINTER(Sampling), c_char_p, c_int32]
    library.pagoda_score.argtypes = [POINTER(Scoring), c_char_p, c_int32]
    library.pagoda_multiply.argtypes = [c_char_p, c_int32, c_int64, c_int32]
    library.pagoda_multiply.restype = c_int64
    library.pagoda_read.argtypes = [c_void_p, c_int64, c_int32]
    library.pagoda_read.restype = c_uint64
    return library


def available_instruction_sets() -> tuple[str, ...]:
    """What this machine can run, the best first; nothing where the library was not built."""
    library = load_library()
    if library is None:
        return ()
    return tuple(name for name in INSTRUCTION_SETS if library.pagoda_supports(name.encode()))
