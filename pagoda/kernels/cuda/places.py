"""Where the values of a program lie: buffers that values share which are never alive at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from pagoda.kernels.cuda.counting import bytes_of
from pagoda.kernels.cuda.fusion import AddNorm, Gate, PlainNorm, Project, Quantize
from pagoda.kernels.cuda.recorder import Call
from pagoda.kernels.symbol import Symbol

# Kept from step to step: a view takes Python a microsecond, and a step with prompts asks for hundreds.
MOST_VIEWS = 1000


@dataclass(frozen=True, eq=False)
class Place:
    buffer: int
    column: int
    width: int


class Places:
    def __init__(
        self,
        calls: Sequence[Call],
        last: Symbol,
        device: torch.device,
        dtype: torch.dtype,
        max_tokens: int,
        max_logits: int,
    ) -> None:
        self._device = device
        self._dtype = dtype
        self._rows = {False: max_tokens, True: max_logits}
        self._places: dict[int, Place] = {}
        self._buffers: list[torch.Tensor] = []
        self._of_logits: set[int] = set()  # the buffers behind `take_rows`
        self._scales = {  # of the last value that was rounded: the product that reads it comes before the next
            is_rows: torch.empty(rows, device=device) for is_rows, rows in self._rows.items()
        }
        self._views: dict[tuple[int, int, int, int, bool], torch.Tensor] = {}
        self._assign(calls, last)

    def view(self, symbol: Symbol | None, count: int) -> torch.Tensor:
        """The first `count` rows of a value: [count, width]; parts of a joined product are columns of it."""
        assert symbol is not None
        place = self._places[symbol.value]
        return self._view(place.buffer, place.column, place.width, count)

    def heads(self, symbol: Symbol | None, count: int, head_dim: int) -> torch.Tensor:
        """The same as [count, heads, head_dim]; not for parts."""
        assert symbol is not None
        return self._view(self._places[symbol.value].buffer, 0, head_dim, count, by_head=True)

    def whole(self, symbol: Symbol, count: int) -> torch.Tensor:
        """The joined product that the value is a part of."""
        buffer = self._places[symbol.value].buffer
        return self._view(buffer, 0, self._buffers[buffer].shape[1], count)

    def scales(self, symbol: Symbol | None, count: int) -> torch.Tensor:
        assert symbol is not None
        return self._scales[symbol.is_rows][:count]

    def num_bytes(self, of_logits: bool) -> int:
        """Of the values of tokens, or of those behind `take_rows`."""
        mine = [buffer for index, buffer in enumerate(self._buffers) if (index in self._of_logits) == of_logits]
        return bytes_of(*mine, self._scales[of_logits])

    def _view(self, number: int, column: int, width: int, count: int, by_head: bool = False) -> torch.Tensor:
        key = number, column, width, count, by_head
        view = self._views.get(key)
        if view is None:
            if len(self._views) >= MOST_VIEWS:
                self._views.clear()
            rows = self._buffers[number][:count]
            if by_head:
                view = rows.view(count, -1, width)
            else:
                view = rows if width == rows.shape[1] else rows[:, column : column + width]
            self._views[key] = view
        return view

    def _assign(self, calls: Sequence[Call], last: Symbol) -> None:
        roots = _roots(calls)
        last_read: dict[int, int] = {roots.get(last.value, last.value): len(calls)}
        for index, call in enumerate(calls):
            for symbol in call.reads:
                root = roots.get(symbol.value, symbol.value)
                last_read[root] = max(last_read.get(root, 0), index)
        free: dict[tuple[bool, int, torch.dtype], list[int]] = {}
        alive: dict[int, tuple[bool, int, torch.dtype]] = {}
        for index, call in enumerate(calls):
            for symbol in _made_by(call):
                dtype = torch.float8_e4m3fn if _is_bytes(call) and symbol is call.out else self._dtype
                kind = (symbol.is_rows, symbol.width, dtype)
                if not free.get(kind):
                    free.setdefault(kind, []).append(len(self._buffers))
                    if symbol.is_rows:
                        self._of_logits.add(len(self._buffers))
                    rows = self._rows[symbol.is_rows]
                    self._buffers.append(torch.empty((rows, symbol.width), device=self._device, dtype=dtype))
                self._places[symbol.value] = Place(free[kind].pop(), 0, symbol.width)
                alive[symbol.value] = kind
            if isinstance(call, Project):
                self._place_parts(call)
            for value in [value for value in alive if last_read.get(value, 0) <= index]:
                free[alive.pop(value)].append(self._places[value].buffer)

    def _place_parts(self, call: Project) -> None:
        assert call.out is not None
        buffer, column = self._places[call.out.value].buffer, 0
        for product in call.products:
            assert product.out is not None
            self._places[product.out.value] = Place(buffer, column, product.out.width)
            column += product.out.width


def _made_by(call: Call) -> list[Symbol]:
    made = [call.total] if isinstance(call, AddNorm) else []
    return [*made, call.out] if call.out is not None else made


def _is_bytes(call: Call) -> bool:
    return isinstance(call, AddNorm | PlainNorm | Gate | Quantize) and call.makes_bytes


def _roots(calls: Sequence[Call]) -> dict[int, int]:
    """By part of a joined product: the value it is a part of."""
    return {
        product.out.value: call.out.value
        for call in calls
        if isinstance(call, Project) and call.out is not None
        for product in call.products
        if product.out is not None
    }
