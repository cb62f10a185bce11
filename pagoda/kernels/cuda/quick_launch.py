"""Launches without Triton's binding of arguments, where the same kinds of arguments were launched before.

At each launch Triton reads the kind of every argument, the text of every option and its own settings to find what it
has built: thirty microseconds of Python and more. A step with prompts makes hundreds of launches, and all of them are
like those of the step before or of the layer before.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import torch
from triton.compiler import CompiledKernel
from triton.runtime.jit import JITFunction
from triton.tools.tensor_descriptor import TensorDescriptor

ALIGNMENT = 16  # of an address; Triton builds other code where it holds
KNOWN = {torch.Tensor, TensorDescriptor, int, float, type(None)}
MOST_BUILT = 4096


@dataclass(frozen=True, eq=False, slots=True)
class Launch:
    """One that was made, and may be made again."""

    compiled: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]

    def again(self, others: dict[int, Any]) -> None:
        """With others of the same kinds in the place of some arguments, which are named by their ids."""
        self.compiled[self.grid](*[others.get(id(argument), argument) for argument in self.arguments])


def quick(kernel: Any) -> Any:
    """A kernel that is launched as before, `kernel[grid](...)`, with its constants by name.

    A launch gives a `Launch`, or None where it could not be made again. Interpreted kernels, and those whose constants
    are not their last parameters, stay what they are.
    """
    if not isinstance(kernel, JITFunction):
        return kernel
    are_constant = [parameter.is_constexpr for parameter in kernel.params]
    if are_constant != sorted(are_constant):
        return kernel
    return QuickKernel(kernel, are_constant.count(False))


class QuickKernel:
    """What was built, by the kinds of arguments. All launches of a process are on one device."""

    def __init__(self, kernel: Any, num_arguments: int) -> None:
        self._kernel = kernel
        self._num_arguments = num_arguments
        self._constants = [parameter.name for parameter in kernel.params[num_arguments:]]
        self._built: dict[Hashable, tuple[Any, tuple[Any, ...]]] = {}

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Launch | None]:
        def launch(*arguments: Any, **named: Any) -> Launch | None:
            key = kinds_of(arguments, named)
            built = self._built.get(key)
            if built is None:
                self._launch_slowly(key, grid, arguments, named)
                return None
            made = Launch(built[0], grid + (1,) * (3 - len(grid)), arguments + built[1])
            made.compiled[made.grid](*made.arguments)
            return made

        return launch

    def _launch_slowly(
        self, key: Hashable, grid: tuple[int, ...], arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> None:
        compiled = self._kernel[grid](*arguments, **named)
        is_whole = len(arguments) == self._num_arguments and named.keys() >= set(self._constants)
        if key is None or not is_whole or not isinstance(compiled, CompiledKernel):
            return
        if len(self._built) >= MOST_BUILT:
            self._built.clear()
        self._built[key] = compiled, tuple(named[name] for name in self._constants)


def kinds_of(arguments: tuple[Any, ...], named: dict[str, Any]) -> Hashable:
    """All that Triton looks at in the arguments, and more. None: there is one that is left to Triton."""
    types = tuple(map(type, arguments))
    if not KNOWN.issuperset(types):
        return None
    kinds = [
        (argument.dtype, argument.data_ptr() % ALIGNMENT == 0) if kind is torch.Tensor else argument
        for kind, argument in zip(types, arguments, strict=True)
    ]
    if TensorDescriptor in types:
        kinds = [_tiles_kind(one) if type(one) is TensorDescriptor else one for one in kinds]
    return (types, *kinds, *named.items())


def _tiles_kind(tiles: Any) -> Hashable:
    lists = {name: value for name, value in vars(tiles).items() if name != "base"}
    return tiles.base.dtype, *[(name, str(value)) for name, value in lists.items()]
