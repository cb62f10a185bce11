"""Tensors where the kernels run: on the GPU, or in the memory of the interpreter."""

from __future__ import annotations

import numpy as np
import torch

from pagoda.kernels.base import KVPages

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
# Relative to the largest number of the result. One rounding of the weights and one of the result, to 24, 11 or 8 bits;
# sums are in float32.
TOLERANCES = {"f32": 3e-6, "f16": 2e-3, "bf16": 1.6e-2}


def on_device(array: np.ndarray, dtype: torch.dtype | None = None) -> torch.Tensor:
    return torch.tensor(array).to(DEVICE, dtype)


def behind_a_poisoned_page(pages: np.ndarray, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Whoever takes -1 for a page's number finds no number there."""
    return on_device(np.concatenate([np.full_like(pages[:1], np.nan), pages]), dtype)[1:]


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    return (tensor.float() if tensor.is_floating_point() else tensor).cpu().numpy()


def rounded(array: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """What is left of float32 numbers in a narrower type."""
    return torch.from_numpy(array).to(dtype).float().numpy()


def rounded_pages(pages: KVPages, dtype: torch.dtype) -> KVPages:
    return KVPages(rounded(pages.keys, dtype), rounded(pages.values, dtype))


def poisoned(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A buffer in which an element that nobody wrote shows."""
    return torch.full(shape, float("nan"), dtype=dtype, device=DEVICE)


def assert_close(actual: torch.Tensor, expected: np.ndarray, tolerance: float) -> None:
    np.testing.assert_allclose(to_numpy(actual), expected, rtol=0, atol=tolerance * np.abs(expected).max())
