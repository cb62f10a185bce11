"""Keys and values of every layer on the device, and copies of pages."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pagoda.core.cache import CacheGroup
from pagoda.core.plan import PageCopy
from pagoda.kernels.base import KVPages
from pagoda.kernels.cuda.counting import bytes_of


class DevicePages:
    """A group's layers lie in one tensor, [layers, 2, pages, page size, heads, head width]: a copy is one call."""

    def __init__(
        self,
        groups: Sequence[CacheGroup],
        num_pages: Sequence[int],
        page_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self._groups = [
            torch.zeros(
                (len(group.layers), 2, count, page_size, group.num_kv_heads, group.head_dim), dtype=dtype, device=device
            )
            for group, count in zip(groups, num_pages, strict=True)
        ]
        by_layer = {
            layer: KVPages(pages[0], pages[1])
            for group, tensor in zip(groups, self._groups, strict=True)
            for layer, pages in zip(group.layers, tensor, strict=True)
        }
        self.layers = [by_layer[layer] for layer in range(len(by_layer))]

    def copy(self, copies: Sequence[PageCopy]) -> None:
        """Before anything of the step is written."""
        for index, tensor in enumerate(self._groups):
            mine = [copy for copy in copies if copy.group == index]
            if mine:
                try:
                    _copy_together(tensor, mine)
                except torch.OutOfMemoryError:  # one by one they need none
                    for copy in mine:
                        tensor[:, :, copy.target].copy_(tensor[:, :, copy.source])

    def num_bytes(self) -> int:
        return bytes_of(*self._groups)


def _copy_together(tensor: torch.Tensor, copies: Sequence[PageCopy]) -> None:
    sources = torch.tensor([copy.source for copy in copies], device=tensor.device)
    targets = torch.tensor([copy.target for copy in copies], device=tensor.device)
    tensor[:, :, targets] = tensor[:, :, sources]
