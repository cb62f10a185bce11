"""Numbers in the interpreter as a GPU rounds them: to the nearest, of two equally near to the even one, and for float8
no further than to its largest number. The interpreter's own conversion cuts bf16 off, and to float8 it loses a carry.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import triton.language as tl
from triton.runtime import interpreter

TORCH_TYPES = {
    tl.float16: torch.float16,
    tl.bfloat16: torch.bfloat16,
    tl.float32: torch.float32,
    tl.float64: torch.float64,
    tl.float8e4nv: torch.float8_e4m3fn,
    tl.float8e5: torch.float8_e5m2,
}
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
_SIZES = (1, 2, 4, 8)
_WHOLE = {size: (np.dtype(f"u{size}"), getattr(torch, f"uint{8 * size}")) for size in _SIZES}


def convert(numbers: np.ndarray, given: Any, wanted: Any, _rounding: Any = None) -> np.ndarray:
    """The bits of numbers of one type in another. The interpreter keeps narrow types as whole numbers."""
    if given not in TORCH_TYPES or wanted not in TORCH_TYPES:
        raise NotImplementedError(f"{given} to {wanted}")
    with torch._C.DisableTorchFunction():  # these tensors need no fences
        bits = np.ascontiguousarray(numbers).view(_WHOLE[numbers.itemsize][0])
        values = torch.from_numpy(bits).view(TORCH_TYPES[given])
        if TORCH_TYPES[wanted] in FLOAT8:
            largest = torch.finfo(TORCH_TYPES[wanted]).max
            values = values.double().clamp(-largest, largest)
        made = values.to(TORCH_TYPES[wanted])
        return made.view(_WHOLE[made.element_size()][1]).numpy().reshape(numbers.shape)


@pytest.fixture(autouse=True)
def rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU its own instructions do this."""
    monkeypatch.setattr(interpreter, "_convert_float", convert)
