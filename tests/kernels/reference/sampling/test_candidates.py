from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pagoda.kernels.reference.sampling.candidates import Candidates


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=40), st.integers(1, 45))
def test_best_ranks_by_value_then_id(values: list[int], count: int) -> None:
    pool = Candidates(np.arange(len(values)) * 2, np.array(values, dtype=np.float64))
    expected = sorted(range(len(values)), key=lambda index: (-values[index], index))[:count]
    best = pool.best(count)
    assert best.token_ids.tolist() == [2 * index for index in expected]
    assert best.logits.tolist() == [values[index] for index in expected]
    assert best.best(3).token_ids.tolist() == best.token_ids[:3].tolist()


def test_probabilities_of_huge_logits() -> None:
    pool = Candidates(np.arange(3), np.array([1e6, 1e6, -1e6]))
    assert pool.probabilities().tolist() == [0.5, 0.5, 0.0]
