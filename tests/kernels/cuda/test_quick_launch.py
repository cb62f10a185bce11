from __future__ import annotations

from typing import Any

import pytest
import torch
import triton.language as tl
from hypothesis import given
from hypothesis import strategies as st
from triton.backends.nvidia.compiler import CUDABackend
from triton.compiler import CompiledKernel
from triton.runtime.jit import JITFunction, native_specialize_impl
from triton.tools.tensor_descriptor import TensorDescriptor

from pagoda.kernels.cuda.quick_launch import QuickKernel, kinds_of, quick

NUMBERS = torch.zeros(64, dtype=torch.uint8)
TENSORS = st.builds(
    lambda start, dtype: NUMBERS[start : start + 16].view(dtype),
    st.sampled_from([0, 8, 16, 24]),
    st.sampled_from([torch.float32, torch.bfloat16, torch.int32, torch.int64]),
)
INTEGERS = st.one_of(st.integers(-40, 40), st.integers(2**31 - 20, 2**31 + 20), st.integers(2**63 - 20, 2**63 + 20))
TILES = st.builds(
    lambda dtype, block: TensorDescriptor(torch.zeros((64, 32), dtype=dtype), [64, 32], [32, 1], block),
    st.sampled_from([torch.float32, torch.bfloat16]),
    st.sampled_from([[16, 16], [16, 32], [32, 32]]),
)
ARGUMENTS = st.one_of(TENSORS, TILES, INTEGERS, st.floats(), st.none())


@given(ARGUMENTS, ARGUMENTS)
def test_arguments_of_one_kind_are_one_kind_to_triton(one: Any, other: Any) -> None:
    def to_triton(argument: Any) -> Any:
        return [
            native_specialize_impl(CUDABackend, argument, False, specializes, True) for specializes in (True, False)
        ]

    if kinds_of((one,), {}) == kinds_of((other,), {}):
        assert to_triton(one) == to_triton(other)


def test_what_is_unknown_is_left_to_triton_and_constants_tell_launches_apart() -> None:
    assert kinds_of((1, object()), {}) is None
    assert kinds_of((3,), {"BLOCK": 16}) != kinds_of((3,), {"BLOCK": 32})
    assert kinds_of((3, NUMBERS[:16]), {"BLOCK": 16}) == kinds_of((3, NUMBERS[32:]), {"BLOCK": 16})
    assert kinds_of((1,), {}) != kinds_of((1.0,), {})
    assert kinds_of((3, None), {}) != kinds_of((3,), {})


class Built(CompiledKernel):
    """What Triton gives for a launch; it notes what it is launched with."""

    def __init__(self) -> None:
        self.module = None
        self.launches: list[tuple[Any, ...]] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return lambda *arguments: self.launches.append((grid, arguments))


def add(out, x, count, BLOCK: tl.constexpr, EARLY: tl.constexpr):  # type: ignore[no-untyped-def]
    pass


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> tuple[QuickKernel, list[Built]]:
    built: list[Built] = []

    def run(self: Any, *arguments: Any, grid: Any, warmup: bool, **named: Any) -> Built:
        built.append(Built())
        return built[-1]

    monkeypatch.setattr(JITFunction, "run", run)
    found = quick(JITFunction(add))
    assert isinstance(found, QuickKernel)
    return found, built


def test_the_second_launch_of_a_kind_goes_past_triton(kernel: tuple[QuickKernel, list[Built]]) -> None:
    launch, built = kernel
    x, y = torch.zeros(4), torch.ones(4)
    assert launch[2, 3](x, y, 5, EARLY=False, BLOCK=8, num_warps=4) is None
    assert len(built) == 1 and not built[0].launches
    made = launch[7,](y, x, 5, EARLY=False, BLOCK=8, num_warps=4)
    assert len(built) == 1
    [(grid, arguments)] = built[0].launches
    assert grid == (7, 1, 1)
    assert arguments[0] is y and arguments[1] is x and arguments[2:] == (5, 8, False), "constants in their own order"
    assert made is not None
    z = torch.ones(4)
    made.again({id(x): z})
    [_, (grid, arguments)] = built[0].launches
    assert grid == (7, 1, 1)
    assert arguments[0] is y and arguments[1] is z and arguments[2:] == (5, 8, False)


def test_another_kind_is_built_anew(kernel: tuple[QuickKernel, list[Built]]) -> None:
    launch, built = kernel
    x = torch.zeros(4)
    for other in (x, x[1:], x.long(), None):
        launch[1,](x, other, 5, BLOCK=8, EARLY=False, num_warps=4)
    launch[1,](x, x, 16, BLOCK=8, EARLY=False, num_warps=4)
    launch[1,](x, x, 5, BLOCK=8, EARLY=False, num_warps=8)
    assert len(built) == 6 and not any(one.launches for one in built)


def test_constants_by_place_are_left_to_triton(kernel: tuple[QuickKernel, list[Built]]) -> None:
    launch, built = kernel
    x = torch.zeros(4)
    for _ in range(2):
        launch[1,](x, x, 5, 8, EARLY=False)
    assert len(built) == 2


def test_a_kernel_that_is_interpreted_stays_what_it_is() -> None:
    assert quick(add) is add
