from __future__ import annotations

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
