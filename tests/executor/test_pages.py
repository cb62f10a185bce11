"""Every layer has the pages of its own group, and copies stay in it."""

from __future__ import annotations

import numpy as np
import pytest

from pagoda.core.cache import CacheGroup, KVCacheType
from pagoda.core.plan import PageCopy
from pagoda.executor.pages import PageStore
from pagoda.kernels.base import KVPages
from pagoda.kernels.cpu.program import new_pages as native_pages
from pagoda.kernels.reference import ReferenceOperators
from pagoda.kernels.reference.paging import new_pages as reference_pages

FULL = CacheGroup("full", (1, 3), 2, 8)
WINDOW = CacheGroup("window", (0, 2), 1, 4, window=8)


def test_layers_lie_in_the_order_of_the_model():
    store = PageStore((FULL, WINDOW), (5, 3), page_size=4)
    shapes = [layer.keys.shape for layer in store.layers]
    assert shapes == [(3, 4, 1, 4), (5, 4, 2, 8), (3, 4, 1, 4), (5, 4, 2, 8)]
    assert all(layer.keys.dtype == layer.values.dtype == np.float32 for layer in store.layers)


def test_no_two_layers_share_memory():
    store = PageStore((FULL, WINDOW), (5, 3), page_size=4)
    arrays = [array for layer in store.layers for array in (layer.keys, layer.values)]
    for number, array in enumerate(arrays):
        array[...] = number
    assert [float(array.flat[0]) for array in arrays] == list(range(8))


def test_a_copy_reaches_every_layer_of_its_group_and_no_other():
    store = PageStore((FULL, WINDOW), (5, 3), page_size=4)
    for number, layer in enumerate(store.layers):
        for page in range(len(layer.keys)):
            layer.keys[page] = 10 * number + page
            layer.values[page] = -(10 * number + page)
    store.copy([PageCopy(0, 1, 4), PageCopy(1, 0, 2), PageCopy(0, 2, 3)], ReferenceOperators())
    found = [[float(page.flat[0]) for page in layer.keys] for layer in store.layers]
    assert found == [[0, 1, 0], [10, 11, 12, 12, 11], [20, 21, 20], [30, 31, 32, 32, 31]]
    for layer in store.layers:
        np.testing.assert_array_equal(layer.values, -layer.keys)


@pytest.mark.parametrize("kv_cache_type", ["f32", "f16", "int8"])
def test_a_copy_is_whole_in_every_type(kv_cache_type: KVCacheType):
    for new_pages in (reference_pages, native_pages):
        store = PageStore((FULL, WINDOW), (3, 3), 4, new_pages, kv_cache_type)
        for layer in store.layers:
            for number, array in enumerate(arrays_of(layer)):
                array[0], array[1] = number + 5, number + 1
        store.copy([PageCopy(0, 0, 2), PageCopy(1, 0, 2)], ReferenceOperators())
        for layer in store.layers:
            assert len(arrays_of(layer)) == (4 if kv_cache_type == "int8" else 2)
            for number, array in enumerate(arrays_of(layer)):
                assert [float(page.flat[0]) for page in array] == [number + 5, number + 1, number + 5]
                assert (array[2] == array[0]).all()


def arrays_of(pages: KVPages) -> list[np.ndarray]:
    return [array for array in vars(pages).values() if array is not None]


def test_nothing_to_copy():
    PageStore((FULL, WINDOW), (5, 3), page_size=4).copy([], ReferenceOperators())
