"""Steps captured once as CUDA graphs and then replayed: one for each size that decoding batches are padded to."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

import torch

from pagoda.executor.cuda.drawing import DrawKind


def bucket_sizes(most: int) -> list[int]:
    """Padding costs least where steps are short: small sizes lie close together."""
    sizes = [1, 2, 4, *range(8, 128, 8), *range(128, 256, 16), *range(256, 2048, 32)]
    return sorted({min(size, most) for size in sizes if size < most} | {most})


@dataclass(frozen=True)
class Variant:
    """What is captured as one graph: so many entries, with or without pages that they share, and how they draw."""

    size: int
    is_shared: bool = False
    kind: DrawKind = DrawKind.GREEDY


class DecodeGraphs:
    """`launch` launches a step on memory that lies still. Without a GPU it is called every time."""

    def __init__(self, launch: Callable[[Variant], None], most: int, device: torch.device) -> None:
        self._launch = launch
        self._sizes = bucket_sizes(most)
        self._captures = device.type == "cuda"
        self._graphs: dict[Variant, torch.cuda.CUDAGraph] = {}
        self._pool = torch.cuda.graph_pool_handle() if self._captures else None

    @property
    def sizes(self) -> list[int]:
        return list(self._sizes)

    def size_for(self, num_entries: int) -> int:
        if not self._captures:
            return num_entries
        return self._sizes[bisect_left(self._sizes, num_entries)]

    def run(self, variant: Variant) -> None:
        graph = self._graphs.get(variant)
        if graph is None:
            self._launch(variant)
        else:
            graph.replay()

    def wants(self, variant: Variant) -> bool:
        """Whether it could be captured and was not."""
        return self._captures and variant not in self._graphs

    def capture(self, variant: Variant) -> None:
        """The inputs must be padding alone: the step runs once before it is captured, so that its kernels are built."""
        if not self.wants(variant):
            return
        self._launch(variant)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            self._launch(variant)
        self._graphs[variant] = graph

    def clear(self) -> None:
        self._graphs.clear()
