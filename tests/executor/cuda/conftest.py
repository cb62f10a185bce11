"""Kernels run on the GPU where there is one, else interpreted on the CPU: between fences, in any order of
programs, looked at for races, with the sums of a GPU."""

from __future__ import annotations

import os

import torch

from tests.kernels.cuda.fences import fences
from tests.kernels.cuda.order import order
from tests.kernels.cuda.products import products
from tests.kernels.cuda.races import races
from tests.kernels.cuda.rounding import rounding
from tests.kernels.cuda.small_device import small_device

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before any kernel is defined

__all__ = ["fences", "order", "products", "races", "rounding", "small_device"]
