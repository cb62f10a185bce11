from __future__ import annotations

import torch

from pagoda.core.cache import CacheGroup
from pagoda.core.plan import PageCopy
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
