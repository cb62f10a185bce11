from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pagoda.executor.cuda.graphs import DecodeGraphs, Variant, bucket_sizes


@pytest.mark.parametrize("most", [1, 2, 3, 8, 100, 256, 512, 1024])
def test_every_batch_has_a_size_that_is_not_much_larger(most: int) -> None:
    sizes = bucket_sizes(most)
    assert sizes == sorted(set(sizes)) and sizes[0] == 1 and sizes[-1] == most
    for count in range(1, most + 1):
        size = next(size for size in sizes if size >= count)
        assert size - count <= max(4, 0.25 * count + 7)


def test_without_a_gpu_every_step_is_launched_as_it_is() -> None:
    launched: list[Variant] = []
    graphs = DecodeGraphs(launched.append, 8, torch.device("cpu"))
    assert graphs.size_for(5) == 5
    graphs.capture(Variant(8))
    graphs.run(Variant(5, is_shared=True))
    assert launched == [Variant(5, is_shared=True)]


class CapturingGraphs(DecodeGraphs):
    """As on a GPU, with launches in place of captures."""

    def __init__(self, launch: Callable[[Variant], None], most: int) -> None:
        super().__init__(launch, most, torch.device("cpu"))
        self._captures = True
        self.captured: list[Variant] = []

    def _captured(self, variant: Variant) -> Any:
        self._launch(variant)
        self.captured.append(variant)
        return SimpleNamespace(replay=lambda: None)


def test_a_step_is_captured_when_it_comes_again() -> None:
    graphs = CapturingGraphs(lambda variant: None, 8)
    assert not graphs.is_due(Variant(4))
    graphs.run(Variant(4))
    assert graphs.is_due(Variant(4)) and not graphs.is_due(Variant(8))
    graphs.capture(Variant(4))
    assert not graphs.is_due(Variant(4)) and graphs.captured == [Variant(4)]


def test_idle_time_is_used_once_something_was_answered_the_smallest_first() -> None:
    graphs = CapturingGraphs(lambda variant: None, 8)
    assert graphs.next_wanted() is None
    graphs.run(Variant(2))
    while (variant := graphs.next_wanted()) is not None:
        graphs.capture(variant)
    assert [variant.size for variant in graphs.captured] == [1, 2, 4, 8]


def test_what_cannot_be_captured_is_launched_and_not_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    launched: list[Variant] = []

    def launch(variant: Variant) -> None:
        if variant.size == 8 and not launched:
            launched.append(variant)
            raise torch.OutOfMemoryError("CUDA out of memory")
        launched.append(variant)

    graphs = CapturingGraphs(launch, 8)
    graphs.capture(Variant(8))
    assert "without a graph" in caplog.text and not graphs.wants(Variant(8))
    graphs.run(Variant(8))
    assert launched == [Variant(8)] * 2 and not graphs.is_due(Variant(8))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_graphs_may_be_given_up_and_captured_again() -> None:
    total = torch.zeros(8, device="cuda")

    def launch(variant: Variant) -> None:
        total[: variant.size] += 1

    graphs = DecodeGraphs(launch, 8, total.device)
    for _ in range(2):
        graphs.capture(Variant(4))
        before = total.clone()
        graphs.run(Variant(4))
        assert (total - before).tolist() == [1] * 4 + [0] * 4
        assert not graphs.wants(Variant(4))
        graphs.clear()
        assert graphs.wants(Variant(4))
