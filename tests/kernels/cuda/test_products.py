"""That interpreted kernels multiply as a GPU does: a row's sums are the same wherever in a tile it stands."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from tests.kernels.cuda.device import DTYPES, TOLERANCES, assert_close, on_device, poisoned, rounded, to_numpy

ROWS, SHARED, COLUMNS = 64, 128, 32


@triton.jit
def _multiply(x, y, out, ROWS: tl.constexpr, SHARED: tl.constexpr, COLUMNS: tl.constexpr):
    rows, shared, columns = tl.arange(0, ROWS)[:, None], tl.arange(0, SHARED), tl.arange(0, COLUMNS)[None, :]
    products = tl.dot(
        tl.load(x + rows * SHARED + shared[None, :]),
        tl.load(y + shared[:, None] * COLUMNS + columns),
        input_precision="ieee",
    )
    tl.store(out + rows * COLUMNS + columns, products)


def product(x: np.ndarray, y: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    out = poisoned((ROWS, COLUMNS), torch.float32)
    _multiply[(1,)](on_device(x, dtype), on_device(y, dtype), out, ROWS, SHARED, COLUMNS)
    return out


@pytest.mark.parametrize("kind", DTYPES)
def test_rows_and_columns_may_stand_anywhere(kind: str) -> None:
    generator = np.random.default_rng(1)
    x = rounded(generator.standard_normal((ROWS, SHARED), np.float32), DTYPES[kind])
    y = rounded(generator.standard_normal((SHARED, COLUMNS), np.float32), DTYPES[kind])
    found = product(x, y, DTYPES[kind])
    assert_close(found, x.astype(np.float64) @ y.astype(np.float64), TOLERANCES["f32"])
    for turn in (1, 7, 30):
        turned = product(np.roll(x, turn, 0), np.roll(y, turn, 1), DTYPES[kind])
        np.testing.assert_array_equal(to_numpy(turned), np.roll(to_numpy(found), (turn, turn), (0, 1)))
