"""The memory behind the page numbers: one array for each cache group, a pair of views of it for each layer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pagoda.core.cache import CacheGroup
from pagoda.core.plan import PageCopy
from pagoda.kernels.base import KVPages, Operators


class PageStore:
    """Keys and values of every layer, in pages."""

    def __init__(self, groups: Sequence[CacheGroup], num_pages: Sequence[int], page_size: int) -> None:
        self._groups = tuple(groups)
        num_layers = sum(len(group.layers) for group in groups)
        by_layer: dict[int, KVPages] = {}
        for group, count in zip(groups, num_pages, strict=True):
            shape = (len(group.layers), 2, count, page_size, group.num_kv_heads, group.head_dim)
            memory = np.zeros(shape, np.float32)  # the system hands out real memory page by page, on first use
            for index, layer in enumerate(group.layers):
                by_layer[layer] = KVPages(memory[index, 0], memory[index, 1])
        self.layers = [by_layer[layer] for layer in range(num_layers)]

    def copy(self, copies: Sequence[PageCopy], operators: Operators) -> None:
        """Copy pages in every layer of their groups, before anything of the step is written."""
        for index, group in enumerate(self._groups):
            mine = [copy for copy in copies if copy.group == index]
            if not mine:
                continue
            sources = np.array([copy.source for copy in mine], np.int32)
            targets = np.array([copy.target for copy in mine], np.int32)
            for layer in group.layers:
                operators.copy_pages(self.layers[layer], sources, targets)
