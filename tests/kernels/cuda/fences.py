"""Memory in which a read beside a tensor shows: what compute-sanitizer is on a GPU, for kernels that are interpreted.

Each tensor ends where memory begins that nobody may touch. In front of it, up to the begin of its first page, lie
numbers that are none, or -1 where they are whole; before that page nobody may touch anything either. So a kernel that
reads beyond a tensor ends the process (and Python says where it was), and what it reads shortly before one spoils its
result.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

PAGE = mmap.PAGESIZE
# Wide, since what is read astray may lie some pages of keys away. It is never touched, so it takes no memory.
FENCE = 64 * PAGE
POISON = b"\xff"
NO_ACCESS = 0  # PROT_NONE
_library = ctypes.CDLL(None, use_errno=True)
_library.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Fences(TorchFunctionMode):
    """While it lasts, every new tensor in main memory lies between fences."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        is_other = not isinstance(result, torch.Tensor) or func is torch.from_numpy  # which goes on sharing memory
        return result if is_other or not is_new(result, (*args, *kwargs.values())) else fenced(result)


@pytest.fixture(autouse=True)
def fences() -> Iterator[None]:
    """On a GPU compute-sanitizer does this."""
    with nullcontext() if torch.cuda.is_available() else Fences():
        yield


def fenced(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers at the same strides, in memory that ends at a fence."""
    storage = tensor.untyped_storage()
    num_bytes = storage.nbytes()
    end = FENCE + -(-num_bytes // PAGE) * PAGE
    begin = end - num_bytes
    memory = mmap.mmap(-1, end + FENCE)
    memory[FENCE:begin] = POISON * (begin - FENCE)
    place = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for fence in (place, place + end):
        if _library.mprotect(fence, FENCE, NO_ACCESS):
            raise OSError(ctypes.get_errno(), "mprotect")
    with torch._C.DisableTorchFunction():
        flat = torch.frombuffer(memory, dtype=torch.uint8, count=num_bytes, offset=begin)
        flat.untyped_storage().copy_(storage)
        made = torch.empty(0, dtype=tensor.dtype)
        made.set_(flat.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride())
    return made


def is_new(tensor: torch.Tensor, arguments: Iterable[Any]) -> bool:
    """Not a view of an argument, nor an argument itself."""
    if tensor.device.type != "cpu" or tensor.is_pinned() or not tensor.numel():
        return False
    place = tensor.untyped_storage().data_ptr()
    others = [one for one in arguments if isinstance(one, torch.Tensor) and one.device.type == "cpu"]
    return all(one.untyped_storage().data_ptr() != place for one in others)
