from __future__ import annotations

import pytest
import torch

from pagoda.core.cache import CacheGroup
from pagoda.core.plan import PageCopy
from pagoda.executor.cuda import pages as pages_module
from pagoda.executor.cuda.pages import DevicePages

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def test_pages_are_copied_in_the_layers_of_their_group_alone() -> None:
    groups = [CacheGroup("full", (0, 2), 2, 8), CacheGroup("window", (1,), 2, 8, 16)]
    pages = DevicePages(groups, (4, 3), 16, torch.float32, DEVICE)
    assert [len(layer.keys) for layer in pages.layers] == [4, 3, 4]
    assert pages.num_bytes() == sum(
        group.bytes_per_token("f32") * 16 * count for group, count in zip(groups, (4, 3), strict=True)
    )
    for number, layer in enumerate(pages.layers):
        layer.keys[1], layer.values[1] = number + 1, -number - 1
    pages.copy([PageCopy(0, 1, 3), PageCopy(0, 1, 0)])
    for layer in (pages.layers[0], pages.layers[2]):
        for target in (0, 3):
            assert torch.equal(layer.keys[target], layer.keys[1]) and torch.equal(layer.values[target], layer.values[1])
    assert not pages.layers[1].keys[0].any()


def test_without_memory_pages_are_copied_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(pages_module, "_copy_together", fail)
    pages = DevicePages([CacheGroup("full", (0, 1), 2, 8)], (5,), 16, torch.float32, DEVICE)
    for number, layer in enumerate(pages.layers):
        layer.keys[1], layer.values[2] = number + 1, number + 7
    pages.copy([PageCopy(0, 1, 3), PageCopy(0, 2, 4)])
    for number, layer in enumerate(pages.layers):
        assert (layer.keys[3] == number + 1).all() and (layer.values[4] == number + 7).all()
        assert not layer.keys[0].any() and not layer.values[3].any()
