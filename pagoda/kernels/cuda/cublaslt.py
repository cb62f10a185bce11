"""Products by cuBLASLt with a tile of our choosing.

torch asks the same library for whatever kernel it thinks best, and that is often one that leaves half of the device
without work: in fp8 the library knows a single answer for every shape. So we ask for the tile that `product_tiles.py`
ranks first. What the library refuses is passed over; where it refuses everything, torch's call is used.

Names and numbers are those of the library's header, cublasLt.h.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, NamedTuple

import torch

from pagoda.kernels.cuda.product_tiles import Tile, tiles_to_try

HOPPER = (9, 0)
FEWEST_ROWS = 2
# A smaller matrix in sixteen bits is over before tiles matter.
FEWEST_BYTES = 1 << 24
# Where a product begins in memory: what the copy engine asks for.
ALIGNMENT = 16
# What a kernel may keep its counts in: the next tile, where multiprocessors take one after the other.
SCRATCH_BYTES = 1 << 16

# Stands for an address until there is one: the library chooses no kernel without, and reads nothing there.
SOMEWHERE = ctypes.c_void_p(1 << 20)

# cudaDataType_t
NUMBER_TYPES = {torch.float16: 2, torch.bfloat16: 14, torch.float8_e4m3fn: 28}
# CUDA_R_32F and CUBLAS_COMPUTE_32F: sums are kept in float32.
FLOAT32, COMPUTE_FLOAT32 = 0, 68
# cublasLtMatmulDescAttributes_t
TRANSPOSED, EPILOGUE, BIAS, A_SCALES, B_SCALES, FAST_SUMS, A_SCALE_MODE, B_SCALE_MODE = 3, 7, 8, 17, 18, 25, 31, 32
ADD_BIAS = 4  # CUBLASLT_EPILOGUE_BIAS
SCALE_A_ROW = 3  # CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F
MOST_SCRATCH = 1  # CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
# cublasLtMatmulAlgoConfigAttributes_t
TILE_ID, NUM_SPLITS, REDUCTION, SWIZZLE, OPTIONS, CLUSTER_ID = 1, 2, 3, 4, 5, 8
SINGLE, PAIRED = 2, 5  # CUBLASLT_CLUSTER_SHAPE_1x1x1 and 1x2x1
# Bits of the kernels' own options, as their names show them: rows on the fine side, tiles one above the other first, a
# tile shared by two groups of warps.
FINE_ROWS, BY_ROWS, SHARED_TILE = 1, 2, 4
# cublasLtMatmulTile_t: by outputs, those of 64, 128 and 192 rows.
COARSE_TILE_IDS = {
    64: (15, 17, 116), 72: (124, 125, 126), 80: (134, 135, 136), 88: (143, 144, 145), 96: (27, 28, 151),
    104: (157, 158, 159), 112: (164, 165, 166), 120: (170, 171, 172), 128: (18, 20, 32), 136: (178, 179, 180),
    144: (183, 184, 185), 152: (188, 189, 190), 160: (193, 30, 194), 168: (196, 197, 198), 176: (200, 201, 202),
    184: (204, 205, 206), 192: (208, 31, 209), 200: (211, 212, 213), 208: (214, 215, 216), 216: (217, 218, 219),
    224: (220, 221, 222),
}  # fmt: skip
# By outputs, those of 16, 32, 48, 64, 80 and 96 rows.
FINE_TILE_IDS = {
    64: (312, 13, 315, 15, 318, 26),
    128: (394, 16, 397, 18, 400, 33),
    256: (487, 35, 490, 21, 493, 495),
}


class _Algorithm(ctypes.Structure):
    _fields_ = [("words", ctypes.c_uint64 * 8)]


class _Found(ctypes.Structure):
    _fields_ = [
        ("algorithm", _Algorithm),
        ("workspace_bytes", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    ]


class CublasLtError(RuntimeError):
    """Made of the library's status."""


class _Library:
    """The copy of cuBLASLt that torch has loaded, and a handle of our own."""

    def __init__(self) -> None:
        assert torch.version.cuda is not None
        self._functions = ctypes.CDLL(f"libcublasLt.so.{torch.version.cuda.split('.')[0]}")
        self.handle = ctypes.c_void_p()
        self.call("Create", ctypes.byref(self.handle))

    def call(self, name: str, *arguments: Any) -> None:
        status = self.try_call(name, *arguments)
        if status != 0:
            raise CublasLtError(f"cublasLt{name} gave status {status}")

    def try_call(self, name: str, *arguments: Any) -> int:
        return int(getattr(self._functions, f"cublasLt{name}")(*arguments))


@cache
def _library() -> _Library | None:
    try:
        return _Library()
    except (OSError, AttributeError, CublasLtError):
        return None


class ProductShape(NamedTuple):
    """What products have in common that one plan serves."""

    num_rows: int
    num_out: int
    num_in: int
    number_type: torch.dtype
    out_type: torch.dtype
    has_bias: bool


class TiledProduct:
    """out [rows, outputs] = x [rows, inputs] by weights [outputs, inputs], cut into chosen tiles.

    In fp8 every row and every output has a scale. All lie in one piece.
    """

    def __init__(self, library: _Library, shape: ProductShape) -> None:
        self._library = library
        self._is_fp8 = shape.number_type == torch.float8_e4m3fn
        self._has_bias = shape.has_bias
        self._one, self._zero = ctypes.c_float(1.0), ctypes.c_float(0.0)
        # The library counts by columns: to it the weights are transposed, and what we call rows are columns.
        self._weights = self._layout(shape.number_type, shape.num_in, shape.num_out)
        self._inputs = self._layout(shape.number_type, shape.num_in, shape.num_rows)
        self._results = self._layout(shape.out_type, shape.num_out, shape.num_rows)
        self._product = ctypes.c_void_p()
        library.call("MatmulDescCreate", ctypes.byref(self._product), COMPUTE_FLOAT32, FLOAT32)
        self._describe(TRANSPOSED, ctypes.c_int32(1))
        if self._is_fp8:
            self._describe(FAST_SUMS, ctypes.c_int8(1))
            self._describe(A_SCALE_MODE, ctypes.c_int32(SCALE_A_ROW))
            self._describe(B_SCALE_MODE, ctypes.c_int32(SCALE_A_ROW))
            self._describe(A_SCALES, SOMEWHERE)
            self._describe(B_SCALES, SOMEWHERE)
        if shape.has_bias:
            self._describe(EPILOGUE, ctypes.c_int32(ADD_BIAS))
            self._describe(BIAS, SOMEWHERE)
        self._algorithm = _Algorithm()

    def __call__(
        self,
        out: torch.Tensor,
        x: torch.Tensor,
        weights: torch.Tensor,
        scratch: torch.Tensor,
        x_scales: torch.Tensor | None = None,
        scales: torch.Tensor | None = None,
        bias: torch.Tensor | None = None,
    ) -> None:
        """`scratch` is anything of SCRATCH_BYTES that nobody else uses meanwhile."""
        if self._is_fp8:
            assert x_scales is not None and scales is not None
            self._describe(A_SCALES, _address(scales))
            self._describe(B_SCALES, _address(x_scales))
        if self._has_bias:
            assert bias is not None
            self._describe(BIAS, _address(bias))
        self._library.call(
            "Matmul", self._library.handle, self._product,
            ctypes.byref(self._one), _address(weights), self._weights, _address(x), self._inputs,
            ctypes.byref(self._zero), _address(out), self._results, _address(out), self._results,
            ctypes.byref(self._algorithm), _address(scratch), ctypes.c_size_t(SCRATCH_BYTES),
            ctypes.c_void_p(torch.cuda.current_stream(out.device).cuda_stream),
        )  # fmt: skip

    def take_tile(self, tile: Tile, number_bytes: int) -> bool:
        """Whether the library has a kernel for it."""
        options = (FINE_ROWS if tile.fine_rows else 0) | (BY_ROWS if tile.paired else 0)
        cluster = PAIRED if tile.paired else SINGLE
        plain = [(TILE_ID, tile_id(tile)), (NUM_SPLITS, 1), (REDUCTION, 0), (SWIZZLE, 0), (CLUSTER_ID, cluster)]
        for is_shared in (tile.is_shared(number_bytes), not tile.is_shared(number_bytes)):
            algorithm = _Algorithm.from_buffer_copy(self._algorithm)
            settings = [*plain, (OPTIONS, options | (SHARED_TILE if is_shared else 0))]
            if all(self._set(algorithm, *setting) for setting in settings) and self._is_known(algorithm):
                self._algorithm = algorithm
                return True
        return False

    def take_default(self) -> bool:
        """Begin with what the library would choose; False: it has nothing."""
        wish, count = ctypes.c_void_p(), ctypes.c_int()
        found = (_Found * 1)()
        self._library.call("MatmulPreferenceCreate", ctypes.byref(wish))
        most = ctypes.c_size_t(SCRATCH_BYTES)
        size = ctypes.c_size_t(ctypes.sizeof(most))
        self._library.call("MatmulPreferenceSetAttribute", wish, MOST_SCRATCH, ctypes.byref(most), size)
        status = self._library.try_call(
            "MatmulAlgoGetHeuristic", self._library.handle, self._product, self._weights, self._inputs,
            self._results, self._results, wish, 1, found, ctypes.byref(count),
        )  # fmt: skip
        self._library.call("MatmulPreferenceDestroy", wish)
        if status != 0 or count.value == 0 or found[0].state != 0:
            return False
        self._algorithm = _Algorithm.from_buffer_copy(found[0].algorithm)
        return True

    def _layout(self, number_type: torch.dtype, width: int, count: int) -> ctypes.c_void_p:
        layout = ctypes.c_void_p()
        self._library.call(
            "MatrixLayoutCreate", ctypes.byref(layout), NUMBER_TYPES[number_type],
            ctypes.c_uint64(width), ctypes.c_uint64(count), ctypes.c_int64(width),
        )  # fmt: skip
        return layout

    def _describe(self, attribute: int, value: Any) -> None:
        size = ctypes.c_size_t(ctypes.sizeof(value))
        self._library.call("MatmulDescSetAttribute", self._product, attribute, ctypes.byref(value), size)

    def _set(self, algorithm: _Algorithm, attribute: int, value: int) -> bool:
        number = ctypes.c_uint16(value) if attribute == CLUSTER_ID else ctypes.c_uint32(value)
        size = ctypes.c_size_t(ctypes.sizeof(number))
        arguments = (ctypes.byref(algorithm), attribute, ctypes.byref(number), size)
        return self._library.try_call("MatmulAlgoConfigSetAttribute", *arguments) == 0

    def _is_known(self, algorithm: _Algorithm) -> bool:
        found = _Found()
        status = self._library.try_call(
            "MatmulAlgoCheck", self._library.handle, self._product, self._weights, self._inputs,
            self._results, self._results, ctypes.byref(algorithm), ctypes.byref(found),
        )  # fmt: skip
        return status == 0 and found.workspace_bytes <= SCRATCH_BYTES


def tile_id(tile: Tile) -> int:
    if tile.fine_rows:
        return FINE_TILE_IDS[tile.outputs][tile.rows // 16 - 1]
    return COARSE_TILE_IDS[tile.outputs][tile.rows // 64 - 1]


def tiled_product(out: torch.Tensor, x: torch.Tensor, weights: torch.Tensor, has_bias: bool) -> TiledProduct | None:
    """The product of these, or of others that lie alike; None: leave it to torch."""
    number_bytes = weights.element_size()
    if not weights.is_cuda or weights.dtype not in NUMBER_TYPES or x.dtype != weights.dtype:
        return None
    if len(x) < FEWEST_ROWS or (number_bytes > 1 and weights.nbytes < FEWEST_BYTES):
        return None
    if any(not one.is_contiguous() or one.data_ptr() % ALIGNMENT for one in (out, x, weights)):
        return None
    num_out, num_in = weights.shape
    return _planned(ProductShape(len(x), num_out, num_in, weights.dtype, out.dtype, has_bias), weights.device.index)


@cache
def _planned(shape: ProductShape, device: int) -> TiledProduct | None:
    library = _library()
    device_of = torch.cuda.get_device_properties(device)
    if library is None or (device_of.major, device_of.minor) != HOPPER:
        return None
    number_bytes = shape.number_type.itemsize
    tiles = tiles_to_try(shape.num_rows, shape.num_out, shape.num_in, number_bytes, device_of.multi_processor_count)
    if not tiles:
        return None
    product = TiledProduct(library, shape)
    if not product.take_default():
        return None
    return product if any(product.take_tile(tile, number_bytes) for tile in tiles) else None


def _address(tensor: torch.Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())
