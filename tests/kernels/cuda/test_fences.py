"""That the other tests would see a kernel read beside a tensor."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
import torch
import triton
import triton.language as tl

from tests.kernels.cuda.device import DTYPES
from tests.kernels.cuda.fences import PAGE, Fences

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU tensors lie on the device")
READ_BEYOND = """
import os
os.environ["TRITON_INTERPRET"] = "1"
import torch
from tests.kernels.cuda.fences import Fences
from tests.kernels.cuda.test_fences import read
with Fences():
    read(torch.arange(8.0), 7)
    print("inside", flush=True)
    read(torch.arange(8.0), {place})
"""


@triton.jit
def _read(x, out, place):
    tl.store(out, tl.load(x + place))


def read(x: torch.Tensor, place: int) -> torch.Tensor:
    out = torch.zeros(1, dtype=x.dtype)
    _read[(1,)](x, out, place)
    return out[0]


@pytest.mark.parametrize("place", [8, 8 + PAGE, -PAGE])
def test_a_kernel_that_reads_beyond_a_tensor_ends_its_process(place: int):
    code = READ_BEYOND.format(place=place)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert "inside" in done.stdout, done.stderr
    assert done.returncode == -signal.SIGSEGV


@pytest.mark.parametrize("kind", DTYPES)
def test_what_lies_shortly_before_a_tensor_is_no_number(kind: str):
    x = torch.zeros(8, dtype=DTYPES[kind])
    assert read(x, 0) == 0 and torch.isnan(read(x, -1).float())
    assert read(torch.zeros(8, dtype=torch.int32), -1) == -1


def test_tensors_are_otherwise_as_they_were():
    with Fences():
        x = torch.arange(24, dtype=torch.float32).view(4, 6)
        turned = x.t().clone()
        assert turned.stride() == x.t().stride() and torch.equal(turned, x.t())
        part = x[1:3]
        part += 100
        assert x[1, 0] == 106 and x[3, 5] == 23
        array = x.numpy()
        array[0, 0] = 7
        assert x[0, 0] == 7 and torch.from_numpy(array)[0, 0] == 7
        narrow = x.to(torch.bfloat16)
        assert (narrow.data_ptr() + narrow.nbytes) % PAGE == 0 and (x.data_ptr() + x.nbytes) % PAGE == 0
        assert not torch.empty(0).numel() and torch.empty(3, device="meta").is_meta
