"""Products with a weight, and the rows of one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pagoda.kernels.base import FloatArray, IntArray, Weight
from pagoda.kernels.reference.dense_weights import DenseWeights

# Up to so many tokens BLAS is quicker with the large matrix on the left.
FEW_TOKENS = 32


def linear(x: FloatArray, matrix: FloatArray, bias: FloatArray | None, accumulate: npt.DTypeLike) -> FloatArray:
    left, right = x.astype(accumulate, copy=False), matrix.astype(accumulate, copy=False)
    product = np.ascontiguousarray((right @ left.T).T) if len(x) <= FEW_TOKENS else left @ right.T
    if bias is not None:
        product += bias
    return product.astype(np.float32, copy=False)


def embed(dense_weights: DenseWeights, weight: Weight, token_ids: IntArray) -> FloatArray:
    """Only the rows asked for are dequantized, unless an output head has already made the whole matrix."""
    dense = dense_weights.peek(weight)
    return weight.rows_to_float32(token_ids) if dense is None else dense[token_ids]
