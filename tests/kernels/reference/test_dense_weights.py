from __future__ import annotations

import numpy as np

from pagoda.kernels.reference import ReferenceOperators
from pagoda.kernels.reference.dense_weights import DenseWeights
from tests.kernels.reference.dense_weight import DenseWeight


def test_a_weight_is_decoded_once_and_shared_by_identity():
    kept = DenseWeights()
    weight, equal_weight = DenseWeight(np.ones((2, 3))), DenseWeight(np.ones((2, 3)))
    assert kept.peek(weight) is None
    assert kept.get(weight) is kept.get(weight) is kept.peek(weight)
    assert weight.num_decoded == 1
    assert kept.get(equal_weight) is not kept.get(weight)


def test_two_tables_share_nothing():
    weight = DenseWeight(np.ones((2, 3)))
    for operators in (ReferenceOperators(), ReferenceOperators()):
        operators.prepare(weight)
        operators.prepare(weight)
    assert weight.num_decoded == 2


def test_an_entry_outlives_the_callers_reference():
    """An id that is free again could belong to another weight."""
    kept = DenseWeights()
    for value in range(100):
        assert kept.get(DenseWeight(np.full((1, 1), value)))[0, 0] == value
