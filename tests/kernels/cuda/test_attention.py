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

HEADS, WIDTH = 2, 16


class Noted:
    """Stands for a kernel: notes the pages of each launch, and whether its arguments were made anew."""

    def __init__(self, name: str, notes: list[Any], may_repeat: bool) -> None:
        self.name, self.notes, self.may_repeat = name, notes, may_repeat

    def __call__(self, *arguments: Any, page_tiles: PageTiles, fresh: None = None) -> Launch | None:
        tiles = page_tiles.of(64 if self.name == "prefill" else 16)
        assert tiles is not None
        self.notes.append((self.name, "anew", *arguments[2:4], tiles.keys.base, tiles.values.base))
        return Launch(self, (1, 1, 1), (*arguments, *tiles)) if self.may_repeat else None

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def again(*arguments: Any) -> None:
            bases = [argument.base for argument in arguments if isinstance(argument, TensorDescriptor)]
            self.notes.append((self.name, "again", *arguments[2:4], *bases))

        return again


def batch_of(num_decoding: int, num_prompts: int) -> DeviceBatch:
    count = num_decoding + num_prompts
    numbers = torch.zeros(count + 1, dtype=torch.int32)
    tables = (torch.zeros((count, 2), dtype=torch.int32),) * 2
    return DeviceBatch(numbers, numbers, numbers, numbers, numbers, numbers[:count], tables, num_decoding, 4)


@pytest.mark.parametrize("may_repeat", [True, False])
@pytest.mark.parametrize("num_decoding", [0, 3])
@pytest.mark.parametrize("num_prompts", [0, 2])
def test_layers_that_are_alike_launch_again_on_their_own_pages(
    may_repeat: bool, num_decoding: int, num_prompts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[Any] = []
    for name in ("decode", "prefill"):
        monkeypatch.setattr(attention, f"{name}_attention", Noted(name, notes, may_repeat))
    names = ["decode"] * bool(num_decoding) + ["prefill"] * bool(num_prompts)
    attend = Attention(torch.device("cpu"), 8, [HeadShape(HEADS, HEADS, WIDTH, window) for window in (0, 8)])
    out, queries = (torch.zeros((8, HEADS, WIDTH)) for _ in range(2))
    layers = [KVPages(*torch.zeros((2, 3, 64, HEADS, WIDTH))) for _ in range(4)]
    for _ in range(2):  # the next step launches anew
        batch = batch_of(num_decoding, num_prompts)
        for number, (layer, group) in enumerate(zip(layers, (0, 1, 0, 1), strict=True)):
            if not names:
                continue
            attend(out, queries, layer, batch, group, 0.25, 8 * group)
            how = "again" if may_repeat and number > 1 else "anew"
            assert [note[:2] for note in notes] == [(name, how) for name in names]
            pages = (layer.keys, layer.values)
            for _, _, *noted in notes:
                assert all(one is other for one, other in zip(noted, pages * 2, strict=True))
            notes.clear()
