"""Interpreted programs in an order of their own at every launch, since a GPU runs them in any.

The interpreter takes the programs of a grid one after the other, the last one always last: whatever is done by the
program that finishes last, or relies on the one before, would be tried in one way alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

SEED = 5


class AnyOrder:
    """Tells the interpreter's programs other numbers than it meant to."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)
        self._places: Iterator[list[int]] = iter(())

    def set_grid(self, *sizes: int) -> None:
        places = self._generator.permutation(int(np.prod(sizes)))
        self._places = iter(np.stack(np.unravel_index(places, sizes), 1).tolist())

    def next_place(self) -> tuple[int, ...]:
        return tuple(next(self._places))


@pytest.fixture(autouse=True)
def order(monkeypatch: pytest.MonkeyPatch) -> None:
    if torch.cuda.is_available():
        return
    from triton.runtime.interpreter import interpreter_builder

    any_order = AnyOrder(SEED)
    set_grid, set_place = interpreter_builder.set_grid_dim, interpreter_builder.set_grid_idx

    def set_grid_dim(*sizes: int) -> None:
        any_order.set_grid(*sizes)
        set_grid(*sizes)

    monkeypatch.setattr(interpreter_builder, "set_grid_dim", set_grid_dim)
    monkeypatch.setattr(interpreter_builder, "set_grid_idx", lambda *_: set_place(*any_order.next_place()))
