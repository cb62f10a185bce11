from __future__ import annotations

from typing import Any

import pytest
import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from pagoda.kernels.base import KVPages
from pagoda.kernels.cuda import attention
from pagoda.kernels.cuda.attention import Attention, HeadShape
from pagoda.kernels.cuda.batch import DeviceBatch
from pagoda.kernels.cuda.quick_launch import Launch
from pagoda.kernels.cuda.tiles import PageTiles

HEADS, WIDTH = 2, 32


def places_of(*arguments: Any) -> list[int]:
    """Where pages lie, and what finds tiles in them."""
    tensors = [one.base if isinstance(one, TensorDescriptor) else one for one in arguments if one is not None]
    return [tensor.data_ptr() for tensor in tensors]


class Noted:
    """Stands for a kernel: notes the pages of each launch, and whether its arguments were made anew."""

    def __init__(self, name: str, notes: list[Any], may_repeat: bool) -> None:
        self.name, self.notes, self.may_repeat = name, notes, may_repeat

    def __call__(self, *arguments: Any, page_tiles: PageTiles, fresh: None = None) -> Launch | None:
        tiles = page_tiles.of(64 if self.name == "prefill" else 16)
        assert tiles is not None
        self.notes.append((self.name, "anew", *places_of(*arguments[2:4], *tiles)))
        return Launch(self, (1, 1, 1), (*arguments[2:4], *tiles)) if self.may_repeat else None

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def again(*arguments: Any) -> None:
            self.notes.append((self.name, "again", *places_of(*arguments)))

        return again


def batch_of(num_decoding: int, num_prompts: int) -> DeviceBatch:
    count = num_decoding + num_prompts
    numbers = torch.zeros(count + 1, dtype=torch.int32)
    tables = (torch.zeros((count, 2), dtype=torch.int32),) * 2
    return DeviceBatch(numbers, numbers, numbers, numbers, numbers, numbers[:count], tables, num_decoding, 4)


@pytest.mark.parametrize("may_repeat", [True, False])
@pytest.mark.parametrize("num_decoding", [0, 3])
@pytest.mark.parametrize("num_prompts", [0, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float8_e4m3fn])
def test_layers_that_are_alike_launch_again_on_their_own_pages(
    may_repeat: bool, num_decoding: int, num_prompts: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of float8 are found by one way more, two values at a time."""
    notes: list[Any] = []
    for name in ("decode", "prefill"):
        monkeypatch.setattr(attention, f"{name}_attention", Noted(name, notes, may_repeat))
    names = ["decode"] * bool(num_decoding) + ["prefill"] * bool(num_prompts)
    attend = Attention(torch.device("cpu"), 8, [HeadShape(HEADS, HEADS, WIDTH, window) for window in (0, 8)])
    out, queries = (torch.zeros((8, HEADS, WIDTH)) for _ in range(2))
    layers = [KVPages(*torch.zeros((2, 3, 64, HEADS, WIDTH)).to(dtype)) for _ in range(4)]
    for _ in range(2):  # the next step launches anew
        batch = batch_of(num_decoding, num_prompts)
        for number, (layer, group) in enumerate(zip(layers, (0, 1, 0, 1), strict=True)):
            if not names:
                continue
            attend(out, queries, layer, batch, group, 0.25, 8 * group)
            how = "again" if may_repeat and number > 1 else "anew"
            assert [note[:2] for note in notes] == [(name, how) for name in names]
            keys, values = places_of(layer.keys, layer.values)
            for _, _, *noted in notes:
                assert noted == [keys, values] * 2 + [values] * (dtype.itemsize == 1)
            notes.clear()
