"""Steps captured once as CUDA graphs and then replayed: one for each size that decoding batches are padded to."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Sized
from dataclasses import dataclass
from typing import Any

import torch

from pagoda.executor.cuda.wishes import DrawKind

logger = logging.getLogger(__name__)


def bucket_sizes(most: int) -> list[int]:
    """Padding costs least where steps are short: small sizes lie close together."""
    sizes = [1, 2, 4, *range(8, 128, 8), *range(128, 256, 16), *range(256, 2048, 32)]
    return sorted({min(size, most) for size in sizes if size < most} | {most})


def pool_for(graphs: Sized, last: Any) -> Any:
    """Where one more graph finds its memory: with the others, or anew where none is left. What the last graph of a pool
    gave back cannot be captured into again."""
    return last if len(graphs) else torch.cuda.graph_pool_handle()


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
        self._launched: set[Variant] = set()  # steps that were run without a graph
        self._failed: set[Variant] = set()
        self._pool: Any = None

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
            self._launched.add(variant)
        else:
            graph.replay()

    def wants(self, variant: Variant) -> bool:
        """Whether it could be captured and was not."""
        return self._captures and variant not in self._graphs and variant not in self._failed

    def is_due(self, variant: Variant) -> bool:
        """Whether to capture it before it runs: what comes a second time will come again. The first time, whoever
        waits for the tokens of the step before would wait for the capture as well."""
        return variant in self._launched and self.wants(variant)

    def next_wanted(self) -> Variant | None:
        """What to capture while there is nothing else to do, the smallest first: they gain most."""
        wanted = (Variant(size) for size in self._sizes)
        return next((variant for variant in wanted if self.wants(variant)), None) if self._launched else None

    def capture(self, variant: Variant) -> None:
        """The inputs must be padding alone: the step runs once before it is captured, so that its kernels are built.
        Where that fails, the step goes on to be launched call by call."""
        if not self.wants(variant):
            return
        try:
            self._graphs[variant] = self._captured(variant)
        except RuntimeError as error:  # memory has run out, or something that cannot be captured
            self._failed.add(variant)
            logger.warning("a step of %d rows is run without a graph: %s", variant.size, str(error).partition("\n")[0])

    def _captured(self, variant: Variant) -> torch.cuda.CUDAGraph:
        self._launch(variant)
        torch.cuda.synchronize()
        self._pool = pool_for(self._graphs, self._pool)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            self._launch(variant)
        return graph

    def clear(self) -> None:
        self._graphs.clear()
