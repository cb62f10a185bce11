"""The memory behind the page numbers: keys and values of every layer, laid out as the device wants them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pagoda.core.cache import CacheGroup, KVCacheType
from pagoda.core.plan import PageCopy
from pagoda.executor.base import WorkerOperators
from pagoda.kernels.base import KVPages
from pagoda.kernels.reference.paging import new_pages as new_reference_pages

NewPages = Callable[[int, int, int, int, KVCacheType], KVPages]
"""(num_pages, page_size, num_kv_heads, head_dim, type) -> one layer's pages, the page number being the first axis."""


class PageStore:
    """Keys and values of every layer, in pages."""

    def __init__(
        self,
        groups: Sequence[CacheGroup],
        num_pages: Sequence[int],
        page_size: int,
        new_pages: NewPages = new_reference_pages,
        kv_cache_type: KVCacheType = "f32",
    ) -> None:
        self._groups = tuple(groups)
        num_layers = sum(len(group.layers) for group in groups)
        by_layer: dict[int, KVPages] = {}
        for group, count in zip(groups, num_pages, strict=True):
            for layer in group.layers:
                by_layer[layer] = new_pages(count, page_size, group.num_kv_heads, group.head_dim, kv_cache_type)
        self.layers = [by_layer[layer] for layer in range(num_layers)]

    @property
    def num_bytes(self) -> int:
        arrays = (a for p in self.layers for a in (p.keys, p.values, p.key_scales, p.value_scales) if a is not None)
        return sum(array.nbytes for array in arrays)

    def copy(self, copies: Sequence[PageCopy], operators: WorkerOperators) -> None:
        """Copy pages in every layer of their groups, before anything of the step is written."""
        for index, group in enumerate(self._groups):
            mine = [copy for copy in copies if copy.group == index]
            if not mine:
                continue
            sources = np.array([copy.source for copy in mine], np.int32)
            targets = np.array([copy.target for copy in mine], np.int32)
            for layer in group.layers:
                operators.copy_pages(self.layers[layer], sources, targets)
