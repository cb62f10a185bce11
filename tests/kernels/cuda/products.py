"""Products of tiles in the interpreter as the tensor cores have them: each number follows from its row and its column.

The interpreter asks a library of linear algebra, which adds up in an order that depends on where in a tile a row
stands, on some machines by the last bits; which sums a kernel puts together in one order could not be seen there. And
it multiplies numbers of bfloat16 by their codes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import triton.language as tl
from triton.runtime import interpreter

from tests.kernels.cuda.rounding import convert


def multiply(_builder: Any, a: Any, b: Any, total: Any, *_precision: Any) -> Any:
    """One product after the other, from the first column to the last."""
    kind = total.dtype.scalar
    rows, columns = (_plain(one) for one in (a, b))
    products = np.einsum("...ik,...kj->...ij", rows, columns, dtype=total.data.dtype, casting="same_kind")
    return interpreter.TensorHandle(products + total.data, kind)


def _plain(operand: Any) -> np.ndarray:
    kind = operand.dtype.scalar
    is_narrow = kind.is_floating() and kind.primitive_bitwidth < 32
    return convert(operand.data, kind, tl.float32).view(np.float32) if is_narrow else operand.data


@pytest.fixture(autouse=True)
def products(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU its own instructions do this."""
    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", multiply)
